package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"shoal/internal/spelling"
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
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--model %s: %s: no such file or folder%s", value, path, nearFile(path))
	}
	if err != nil {
		return fmt.Errorf("--model %s: %w", value, err)
	}
	if info.IsDir() {
		return os.Symlink(path, folder)
	}
	backend, ok := fileBackends[filepath.Ext(path)]
	if !ok {
		return fmt.Errorf("--model %s: want a file that ends in .py or .onnx, or a model's folder; export a model of another framework to ONNX, or load it in a Python model", value)
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

// nearFile suggests a file or folder beside path, as the end of a sentence.
func nearFile(path string) string {
	entries, _ := os.ReadDir(filepath.Dir(path)) // without a folder there is no suggestion
	var names []string
	for _, e := range entries {
		if e.IsDir() || fileBackends[filepath.Ext(e.Name())] != "" {
			names = append(names, e.Name())
		}
	}
	if near := spelling.Nearest(filepath.Base(path), names); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
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
