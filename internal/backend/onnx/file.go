package onnx

import (
	"bytes"
	"io"
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
		return "", status.Errorf(status.Unavailable, "unable to find '%s' for model '%s'%s", path, src.Model, src.Without(name))
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

// notAModel says what a file that ONNX Runtime could not parse is instead, as
// the end of a sentence; "" when that is not plain.
func notAModel(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 64)
	n, err := io.ReadFull(f, head)
	if err != nil && n == 0 {
		return "; the file is empty: copy or download it again"
	}
	head = bytes.TrimSpace(head[:n])
	switch {
	case bytes.HasPrefix(head, []byte("version https://git-lfs")):
		return "; the file is a pointer of Git LFS, not the model: run `git lfs pull` where it was cloned"
	case bytes.HasPrefix(head, []byte("<")):
		return "; the file is a web page, not the model: download it again, from the address of the file itself"
	case bytes.HasPrefix(head, []byte("PK")):
		return "; the file is a zip archive, such as torch.save writes: export the model with torch.onnx.export"
	}
	return ""
}
