package modelstore

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// maxConfig is the most bytes of a model's own configuration.
const maxConfig = 1 << 20

// readConfig reads the archive's own configuration, model-config.yaml.
func (v *Version) readConfig(log *slog.Logger) error {
	name := v.manifest.Model.ConfigFile
	if name == "" {
		name = "model-config.yaml"
	}
	if !filepath.IsLocal(name) {
		return errorf(400, kindInvalid, "configFile %q is not in the archive", name)
	}
	b, err := os.ReadFile(filepath.Join(v.dir, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return errorf(400, kindInvalid, "configFile %q cannot be read", name).because(err)
	case len(b) > maxConfig:
		return errorf(400, kindInvalid, "configFile %q has more than %d bytes", name, maxConfig)
	}
	if v.config, err = parseYAML(b); err != nil {
		log.Warn("the model's configuration cannot be read as a whole", "model", v.name, "file", name, "err", err)
	}
	return nil
}
