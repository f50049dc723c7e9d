package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// fileBackends are the backends of the files that --model accepts.
var fileBackends = map[string]string{".py": "python", ".onnx": "onnxruntime"}

// writeModels makes a repository of single models in the new folder dir. Nothing
// is copied: version folders are links, so that a model finds the files beside
// it.
func writeModels(dir string, models []string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for _, m := range models {
		if err := writeModel(dir, m); err != nil {
			return err
		}
	}
	return nil
}

// writeModel adds one model to the repository in dir.
func writeModel(dir, value string) error {
	name, path, err := splitModel(value)
	if err != nil {
		return err
	}
	folder := filepath.Join(dir, name)
	if _, err := os.Lstat(folder); err == nil {
		return fmt.Errorf("--model %s: there are two models %q; rename one of them with --model NAME=PATH", value, name)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("--model %s: %w", value, err)
	}
	if info.IsDir() {
		return os.Symlink(path, folder)
	}
	backend, ok := fileBackends[filepath.Ext(path)]
	if !ok {
		return fmt.Errorf("--model %s: want a file that ends in .py or .onnx, or a model's folder", value)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	config := fmt.Sprintf("backend: %q\ndefault_model_filename: %q\n", backend, filepath.Base(path))
	if err := os.WriteFile(filepath.Join(folder, "config.pbtxt"), []byte(config), 0o600); err != nil {
		return err
	}
	return os.Symlink(filepath.Dir(path), filepath.Join(folder, "1"))
}

// splitModel returns the name and the absolute path in a value of --model.
func splitModel(value string) (name, path string, err error) {
	name, path, ok := strings.Cut(value, "=")
	if !ok {
		name, path = "", value
	}
	if path == "" {
		return "", "", fmt.Errorf("--model is %q, want PATH or NAME=PATH", value)
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", "", fmt.Errorf("--model %s: %w", value, err)
	}
	if name == "" {
		name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return "", "", fmt.Errorf("--model %s: %q cannot be a model's name; give one with --model NAME=PATH", value, name)
	}
	return name, path, nil
}
