package peer

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// WriteShoal makes dir anew as a repository of the models for Shoal, or for a
// Triton with an ONNX Runtime backend.
func WriteShoal(dir string, models ...Model) error {
	return writeRepository(dir, "onnxruntime", "model.onnx", models, func(m Model) ([]byte, error) { return m.ONNX() })
}

// writePython makes dir anew as a repository of those models that have Python
// code, for Triton or for Shoal.
func writePython(dir string, models ...Model) error {
	var python []Model
	for _, m := range models {
		if m.Python != "" {
			python = append(python, m)
		}
	}
	return writeRepository(dir, "python", "model.py", python, func(m Model) ([]byte, error) { return []byte(m.Python), nil })
}

func writeRepository(dir, backend, file string, models []Model, content func(Model) ([]byte, error)) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var before []byte // of the model before, which lies at path
	var path string
	for _, m := range models {
		b, err := content(m)
		if err != nil {
			return fmt.Errorf("model %q: %w", m.Name, err)
		}
		version := filepath.Join(dir, m.Name, "1")
		if err := os.MkdirAll(version, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, m.Name, "config.pbtxt"), []byte(m.Config(backend)), 0o644); err != nil {
			return err
		}
		// Models that differ in their settings share a file: it may be large.
		if to := filepath.Join(version, file); before != nil && bytes.Equal(b, before) {
			err = os.Link(path, to)
		} else {
			before, path = b, to
			err = os.WriteFile(to, b, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
