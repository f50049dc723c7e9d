package peer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Triton returns the command that serves the models with the tritonserver of the
// package nvidia-pytriton in a virtual environment. The repository, the folder of
// backends and the log are made under work. Without models the server has none.
func Triton(venv, work string, models ...Model) (Command, error) {
	site, version, err := sitePackages(venv)
	if err != nil {
		return Command{}, err
	}
	triton := filepath.Join(site, "pytriton", "tritonserver")
	backends := filepath.Join(work, "triton-backends")
	if err := linkBackend(triton, version, backends); err != nil {
		return Command{}, err
	}
	repository := filepath.Join(work, fmt.Sprintf("triton-models-%d", len(models)))
	if err := writePython(repository, models...); err != nil {
		return Command{}, err
	}
	bin, err := filepath.Abs(filepath.Join(venv, "bin"))
	if err != nil {
		return Command{}, err
	}
	return Command{
		Name: "triton",
		Args: []string{
			filepath.Join(triton, "bin", "tritonserver"),
			"--model-repository", repository, "--backend-directory", backends,
		},
		Env: []string{
			"LD_LIBRARY_PATH=" + libraryPath(site, venv),
			"PATH=" + bin + ":" + os.Getenv("PATH"), // the stub's Python is the first one there
		},
		Log: filepath.Join(work, "triton.log"),
	}, nil
}

// TritonONNX returns the command that serves the models with a tritonserver and a
// folder of backends that has its ONNX Runtime backend. Its repository and log
// are made under work. The libraries of the package nvidia-pytriton are found
// when the server is the one in it.
func TritonONNX(server, backends, work string, models ...Model) (Command, error) {
	backend := filepath.Join(backends, "onnxruntime", "libtriton_onnxruntime.so")
	for _, file := range []string{server, backend} {
		if _, err := os.Stat(file); err != nil {
			return Command{}, fmt.Errorf("%w; --tritonserver names the server, --backends the folder with onnxruntime/libtriton_onnxruntime.so", err)
		}
	}
	repository := filepath.Join(work, "triton-onnx-models")
	if err := WriteShoal(repository, models...); err != nil {
		return Command{}, err
	}
	return TritonRepository(server, backends, work, repository), nil
}

// TritonRepository returns the command that serves a repository with a
// tritonserver and a folder of backends.
func TritonRepository(server, backends, work, repository string) Command {
	c := Command{
		Name: "triton",
		Args: []string{server, "--model-repository", repository, "--backend-directory", backends},
		Log:  filepath.Join(work, "triton.log"),
	}
	libraries := filepath.Join(filepath.Dir(server), "..", "..", "..", "nvidia_pytriton.libs")
	if _, err := os.Stat(libraries); err == nil {
		if more := os.Getenv("LD_LIBRARY_PATH"); more != "" {
			libraries += ":" + more
		}
		c.Env = []string{"LD_LIBRARY_PATH=" + libraries}
	}
	return c
}

// sitePackages finds the folder of a virtual environment's packages and the
// version of its Python, such as "3.11".
func sitePackages(venv string) (dir, version string, err error) {
	found, err := filepath.Glob(filepath.Join(venv, "lib", "python3*", "site-packages", "pytriton"))
	if err != nil {
		return "", "", err
	}
	if len(found) != 1 {
		return "", "", fmt.Errorf("%s has no tritonserver; make one with: python3 -m venv %s && %s/bin/pip install nvidia-pytriton==0.7.0", venv, venv, venv)
	}
	dir = filepath.Dir(found[0])
	return dir, strings.TrimPrefix(filepath.Base(filepath.Dir(dir)), "python"), nil
}

// linkBackend lays the Python backend together: the package keeps its parts
// apart, one stub for each version of Python.
func linkBackend(triton, version, backends string) error {
	stub := filepath.Join(triton, "python_backend_stubs", version, "triton_python_backend_stub")
	if _, err := os.Stat(stub); err != nil {
		return fmt.Errorf("this tritonserver does not know Python %s: %w", version, err)
	}
	dir := filepath.Join(backends, "python")
	if err := errors.Join(os.RemoveAll(backends), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	for _, file := range []string{
		stub,
		filepath.Join(triton, "backends", "python", "libtriton_python.so"),
		filepath.Join(triton, "backends", "python", "triton_python_backend_utils.py"),
	} {
		target, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		if err := os.Symlink(target, filepath.Join(dir, filepath.Base(file))); err != nil {
			return err
		}
	}
	return nil
}

// libraryPath returns where the server's libraries lie and, since the stub is
// linked against libpython, where the Python of the environment has its own.
func libraryPath(site, venv string) string {
	path := filepath.Join(site, "nvidia_pytriton.libs")
	b, err := os.ReadFile(filepath.Join(venv, "pyvenv.cfg"))
	if err != nil {
		return path // not a venv; the system's libpython may do
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		if key, home, ok := strings.Cut(lines.Text(), "="); ok && strings.TrimSpace(key) == "home" {
			return path + ":" + filepath.Join(filepath.Dir(strings.TrimSpace(home)), "lib")
		}
	}
	return path
}
