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
// configuration has only the model's name.
func (e Entry) Config(configName string) (*modelpb.ModelConfig, error) {
	cfg, err := e.readConfig(configName)
	if err != nil {
		return nil, err
	}
	return cfg, e.CheckConfig(cfg)
}

// CheckConfig gives a configuration without a name the model's name, and
// refuses another name.
func (e Entry) CheckConfig(cfg *modelpb.ModelConfig) error {
	switch cfg.Name {
	case "":
		cfg.Name = e.Name
	case e.Name:
	default:
		return status.Errorf(status.InvalidArgument,
			"unexpected directory name '%s' for model '%s', directory name must equal model name", e.Name, cfg.Name)
	}
	return nil
}

// ConfigFile returns the path and the text of the configuration file that Config
// would read; none when there is no such file.
func (e Entry) ConfigFile(configName string) (path string, text []byte) {
	for _, path := range e.configPaths(configName) {
		if text, err := readFile(path); err == nil {
			return path, text
		}
	}
	return "", nil
}

// ConfigStamp is the stamp of the configuration file that Config would read.
func (e Entry) ConfigStamp(configName string) Stamp {
	for _, path := range e.configPaths(configName) {
		if info, err := os.Stat(path); err == nil {
			return fileStamp(path, info)
		}
	}
	return 0
}

// configPaths returns where the configuration may be; the first that exists
// counts.
func (e Entry) configPaths(configName string) []string {
	paths := []string{filepath.Join(e.Dir, "config.pbtxt")}
	if configName != "" {
		paths = append([]string{filepath.Join(e.Dir, "configs", configName+".pbtxt")}, paths...)
	}
	return paths
}

func (e Entry) readConfig(configName string) (*modelpb.ModelConfig, error) {
	if configName != "" && configName != filepath.Base(configName) {
		return nil, status.Errorf(status.InvalidArgument, "--model-config-name %q: expected a file's name without folders", configName)
	}
	for _, path := range e.configPaths(configName) {
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
