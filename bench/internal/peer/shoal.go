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
	return shoal(path, work, repository), nil
}

// ShoalPython returns the command that serves the Python code of the models with
// the binary at path and that Python.
func ShoalPython(path, python, work string, models ...Model) (Command, error) {
	if _, err := os.Stat(path); err != nil {
		return Command{}, fmt.Errorf("%w; make build makes it", err)
	}
	repository := filepath.Join(work, "shoal-python-models")
	if err := writePython(repository, models...); err != nil {
		return Command{}, err
	}
	return shoal(path, work, repository, "--python", python), nil
}

// ShoalRepository returns the command that serves a repository with the binary at
// path and further flags.
func ShoalRepository(path, work, repository string, flags ...string) (Command, error) {
	if _, err := os.Stat(path); err != nil {
		return Command{}, fmt.Errorf("%w; make build makes it", err)
	}
	return shoal(path, work, repository, flags...), nil
}

func shoal(path, work, repository string, flags ...string) Command {
	return Command{
		Name: "shoal",
		Args: append([]string{path, "serve", "--model-repository", repository}, flags...),
		Log:  filepath.Join(work, "shoal.log"),
	}
}
