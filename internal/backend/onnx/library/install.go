package library

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// A wheel is the package of one platform, by its hash.
type wheel struct {
	platform string // pip's name of the platform
	sha256   string
	library  string // the file inside
	// more are further files beside it.
	more []string
}

// wheels are the packages that Install knows, by operating system and machine.
var wheels = map[string]wheel{
	"linux/amd64": {
		"manylinux_2_28_x86_64", "fa688e7891a6aa206636fe7372e27ee75fd17713289f6b4fc7b190e0a7de9328",
		"libonnxruntime.so." + Version, nil,
	},
	"linux/arm64": {
		"manylinux_2_28_aarch64", "6c32a000d5139a38ba9349030b0032e3331acb559d596b22738d9d2b343a2b83",
		"libonnxruntime.so." + Version, nil,
	},
	"darwin/arm64": {
		"macosx_14_0_arm64", "001ed726c9bd5e2bc92faade7d37d889e9606a350b7d5529f0227df2e3bb57fd",
		"libonnxruntime." + Version + ".dylib", nil,
	},
}

// gpuWheels are those for NVIDIA's GPUs, of CUDA 13.
var gpuWheels = map[string]wheel{
	"linux/amd64": {
		"manylinux_2_28_x86_64", "6acc0f4b3d5ac5f2984432faa59dd8fcce6775f8b43a7140afa0f322c7a703b1",
		"libonnxruntime.so." + Version,
		[]string{"libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so", "libonnxruntime_providers_tensorrt.so"},
	},
}

// pythonVersion is which of the package's builds is downloaded. The library
// inside is the same in all of them, and no Python loads it.
const pythonVersion = "3.12"

// InstallOptions are where to install to and with which pip.
type InstallOptions struct {
	Data     string    // Shoal's data folder
	GPU      bool      // the build for NVIDIA's GPUs
	Python   string    // the Python whose pip is used; empty means the python3 on the PATH
	Progress io.Writer // gets pip's output; nil means nobody
}

// Installed is the result of Install.
type Installed struct {
	Path    string // the library
	Version string
	Already bool // it was there before
}

// Install downloads the pinned version of ONNX Runtime into the data folder,
// unless it is there. It uses the user's own pip, so that the user's index and
// proxy settings apply. The download is checked against a pinned hash. The
// folder appears completely or not at all.
func Install(ctx context.Context, o InstallOptions) (Installed, error) {
	list, folder, what := wheels, Version, "ONNX Runtime"
	if o.GPU {
		list, folder, what = gpuWheels, Version+gpuFolder, "ONNX Runtime for GPUs"
	}
	w, ok := list[runtime.GOOS+"/"+runtime.GOARCH]
	if !ok {
		return Installed{}, fmt.Errorf("there is no pinned %s for %s on %s; install one and give its path with --onnxruntime-library or %s",
			what, runtime.GOARCH, runtime.GOOS, Variable)
	}
	if o.Data == "" {
		return Installed{}, errors.New("there is no data folder to install to: set HOME or XDG_DATA_HOME")
	}
	dir := filepath.Join(o.Data, "onnxruntime", folder)
	done := Installed{Path: filepath.Join(dir, w.library), Version: Version}
	if _, err := os.Stat(done.Path); err == nil {
		done.Already = true
		return done, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return Installed{}, fmt.Errorf("make the data folder: %w", err)
	}
	// Next to the target, so that the last step is a rename.
	temp, err := os.MkdirTemp(filepath.Dir(dir), ".install-")
	if err != nil {
		return Installed{}, fmt.Errorf("make a folder to unpack in: %w", err)
	}
	defer os.RemoveAll(temp)
	if err := o.fetch(ctx, w, temp); err != nil {
		return Installed{}, err
	}
	if err := os.Rename(filepath.Join(temp, unpacked), dir); err != nil {
		if _, statErr := os.Stat(done.Path); statErr == nil {
			done.Already = true // another process was faster
			return done, nil
		}
		return Installed{}, fmt.Errorf("install ONNX Runtime: %w", err)
	}
	return done, nil
}

// gpuFolder ends the folder's name of the build for GPUs.
const gpuFolder = "-gpu"

// unpacked is the folder of the finished files in the temporary folder.
const unpacked = "unpacked"

// fetch downloads, checks and unpacks the package in temp.
func (o InstallOptions) fetch(ctx context.Context, w wheel, temp string) error {
	python := o.Python
	if python == "" {
		var err error
		if python, err = exec.LookPath("python3"); err != nil {
			return fmt.Errorf("python3 was not found: ONNX Runtime is fetched with its pip; install Python 3 with pip, or give the path of a library with --onnxruntime-library")
		}
	}
	if err := o.download(ctx, python, w, temp); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(temp, "onnxruntime*.whl"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("pip should have downloaded one package of ONNX Runtime, but downloaded %d", len(files))
	}
	if err := checkHash(files[0], w.sha256); err != nil {
		return err
	}
	return unpack(files[0], filepath.Join(temp, unpacked), append([]string{w.library}, w.more...))
}

// download runs pip.
func (o InstallOptions) download(ctx context.Context, python string, w wheel, to string) error {
	requirement := "onnxruntime==" + Version
	if o.GPU {
		requirement = "onnxruntime-gpu==" + Version
	}
	cmd := exec.CommandContext(ctx, python, "-m", "pip", "download", "--disable-pip-version-check", "--no-input",
		"--no-deps", "--only-binary=:all:", "--implementation", "cp", "--python-version", pythonVersion,
		"--platform", w.platform, "--dest", to, requirement)
	cmd.WaitDelay = 5 * time.Second
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if o.Progress != nil {
		cmd.Stdout = io.MultiWriter(&said, o.Progress)
		cmd.Stderr = cmd.Stdout
	}
	err := cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("fetch %s: %w", requirement, ctx.Err())
	case strings.Contains(said.String(), "No module named pip"):
		return fmt.Errorf("%s has no pip: install it (Debian: apt install python3-pip; else: %s -m ensurepip), or give the path of a library with --onnxruntime-library", python, python)
	}
	return fmt.Errorf("pip could not fetch %s (%w): %s; check the network and pip's index and proxy settings, or give the path of a library with --onnxruntime-library",
		requirement, err, complaint(said.String()))
}

// complaint returns the last error in pip's output, or else its last line.
func complaint(said string) string {
	last := "it said nothing"
	for line := range strings.Lines(said) {
		if line = strings.TrimSpace(line); line != "" {
			last = line
		}
	}
	if i := strings.LastIndex(said, "ERROR: "); i >= 0 {
		line, _, _ := strings.Cut(said[i:], "\n")
		return strings.TrimSpace(line)
	}
	return last
}

// checkHash returns an error if a file is not the pinned one.
func checkHash(path, want string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("read %s: %w", filepath.Base(path), err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("%s has the hash sha256:%s, expected sha256:%s; it is not used: does pip's index give the official package?", filepath.Base(path), got, want)
	}
	return nil
}
