package repository

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

// Config reads the model's configuration: configs/<configName>.pbtxt when that
// exists and configName is not empty, else config.pbtxt. Without either the
// configuration has nothing but the model's name.
func (e Entry) Config(configName string) (*modelpb.ModelConfig, error) {
	cfg, err := e.readConfig(configName)
	if err != nil {
		return nil, err
	}
	switch cfg.Name {
	case "":
		cfg.Name = e.Name
	case e.Name:
	default:
		return nil, status.Errorf(status.InvalidArgument,
			"unexpected directory name '%s' for model '%s', directory name must equal model name", e.Name, cfg.Name)
	}
	return cfg, nil
}

func (e Entry) readConfig(configName string) (*modelpb.ModelConfig, error) {
	paths := []string{filepath.Join(e.Dir, "config.pbtxt")}
	if configName != "" {
		if configName != filepath.Base(configName) {
			return nil, status.Errorf(status.InvalidArgument, "--model-config-name %q: expected a file's name without folders", configName)
		}
		paths = append([]string{filepath.Join(e.Dir, "configs", configName+".pbtxt")}, paths...)
	}
	for _, path := range paths {
		text, err := readFile(path)
		switch {
		case err == nil:
			return model.Parse(text, path)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, e.readError(path, err)
		}
	}
	if _, err := os.Stat(e.Dir); err != nil {
		return nil, e.readError(e.Dir, err)
	}
	return &modelpb.ModelConfig{}, nil
}
