package peer

import (
	"fmt"
	"os"
	"path/filepath"
)

// Shoal returns the command that serves the models with the binary at path. The
// repository and the log are made under work.
func Shoal(path, work string, models ...Model) (Command, error) {
	if _, err := os.Stat(path); err != nil {
		return Command{}, fmt.Errorf("%w; make build makes it", err)
	}
	repository := filepath.Join(work, fmt.Sprintf("shoal-models-%d", len(models)))
	if err := WriteShoal(repository, models...); err != nil {
		return Command{}, err
	}
	return Command{
		Name: "shoal",
		Args: []string{path, "serve", "--model-repository", repository},
		Log:  filepath.Join(work, "shoal.log"),
	}, nil
}
