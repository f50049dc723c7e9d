package onnx

import (
	"os"
	"path/filepath"
	"time"

	"shoal/internal/backend"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

// defaultFile is the model's file if the configuration names none.
const defaultFile = "model.onnx"

// modelFile returns the path of a version's model file. A folder stands for the
// model.onnx in it, next to the weights of a large model.
func modelFile(src backend.Source, cfg *modelpb.ModelConfig) (string, error) {
	name := cfg.GetDefaultModelFilename()
	if name == "" {
		name = defaultFile
	}
	path := filepath.Join(src.Dir, name)
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		path = filepath.Join(path, defaultFile)
		info, err = os.Stat(path)
	}
	if err != nil || info.IsDir() {
		return "", status.Errorf(status.Unavailable, "unable to find '%s' for model '%s'", path, src.Model)
	}
	return path, nil
}

// A stamp identifies the state of a file.
type stamp struct {
	size    int64
	changed time.Time
}

func stampOf(path string) (stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	return stamp{info.Size(), info.ModTime()}, nil
}
