package python

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"shoal/internal/backend"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

// Parameters of a model's configuration. Those without the prefix are Triton's;
// all others belong to the model.
const (
	paramPrefix     = "SHOAL_"
	paramPython     = "SHOAL_PYTHON"
	paramEnv        = "SHOAL_ENV_" // with the variable's name behind it
	paramRunTimeout = "SHOAL_EXECUTION_TIMEOUT_SECONDS"
	paramStart      = "SHOAL_START_TIMEOUT_SECONDS"
	// ParamArchive makes a model that of an archive of Multi Model Server or
	// TorchServe: JSON with what shoal/_archive.py needs to know.
	ParamArchive = "SHOAL_ARCHIVE"

	paramEnvPath  = "EXECUTION_ENV_PATH"
	paramForceCPU = "FORCE_CPU_ONLY_INPUT_TENSORS"

	// modelFolder stands for the model's folder in paths.
	modelFolder = "$$TRITON_MODEL_DIRECTORY"
)

// settings say how a model's workers are started and supervised, from the
// server's flags and the model's configuration.
type settings struct {
	python       string   // the interpreter
	packed       string   // the folder of the environment that it is part of, "" when unknown
	env          []string // NAME=VALUE, the model's own
	startTimeout time.Duration
	runTimeout   time.Duration
	maxResult    int
}

// defaultMaxResult bounds the outputs of a batch: no protocol can send more to
// one client.
const defaultMaxResult = 1<<31 - 1

// settings returns how to start a model's workers. It reports all errors at
// once.
func (b *Backend) settings(src backend.Source, cfg *modelpb.ModelConfig) (settings, error) {
	s := settings{maxResult: defaultMaxResult}
	faults := []error{s.applyBackend(b.options.Config)}
	interpreter, environment := b.options.Python, ""
	for _, name := range slices.Sorted(maps.Keys(cfg.GetParameters())) {
		value := strings.ReplaceAll(cfg.GetParameters()[name].GetStringValue(), modelFolder, src.Root)
		var err error
		switch {
		case name == paramPython:
			interpreter = value
		case name == paramEnvPath:
			environment = value
		case name == paramRunTimeout:
			s.runTimeout, err = seconds(value)
		case name == paramStart:
			s.startTimeout, err = seconds(value)
		case name == paramForceCPU:
			if v := strings.ToLower(value); v != "yes" && v != "no" {
				err = errors.New("want yes or no")
			}
		case strings.HasPrefix(name, paramEnv) && len(name) > len(paramEnv):
			s.env = append(s.env, name[len(paramEnv):]+"="+value)
		case name == ParamArchive:
		case model.ServerParameter(name):
		case strings.HasPrefix(name, paramPrefix):
			err = fmt.Errorf("unknown parameter; the parameters are %s, %s, %s, %s and %sNAME", paramPython, paramRunTimeout, paramStart, model.ParamBatching, paramEnv)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("parameters: %s is %q: %w", name, value, err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return s, status.Errorf(status.InvalidArgument, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	var err error
	if environment != "" {
		if s.packed, err = b.environmentFolder(environment); err != nil {
			return s, err
		}
		interpreter = s.packed
	}
	s.python, err = findPython(interpreter)
	return s, err
}

// applyBackend reads --backend-config. Triton's settings for the growth of its
// own shared memory have no meaning here and are accepted.
func (s *settings) applyBackend(config map[string]string) error {
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(config)) {
		value := config[name]
		var err error
		switch name {
		case "shm-default-byte-size", "shm-growth-byte-size", "shm-region-prefix-name", "thread-pool-size", "default-max-batch-size":
		case "stub-timeout-seconds":
			s.startTimeout, err = seconds(value)
		case "execution-timeout-seconds":
			s.runTimeout, err = seconds(value)
		case "max-result-byte-size":
			n, parseErr := strconv.Atoi(value)
			if s.maxResult = n; parseErr != nil || n < pageSize || n > half/2 {
				err = fmt.Errorf("want a number of bytes from %d to %d", pageSize, half/2)
			}
		default:
			err = errors.New("unknown setting; the settings are max-result-byte-size, execution-timeout-seconds and stub-timeout-seconds")
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("--backend-config=python,%s=%s: %w", name, value, err))
		}
	}
	return errors.Join(faults...)
}

// seconds reads a duration in seconds; 0 is no limit.
func seconds(text string) (time.Duration, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0 && n <= math.MaxInt32) {
		return 0, errors.New("want a number of seconds, 0 for no limit")
	}
	return time.Duration(n * float64(time.Second)), nil
}

// findPython returns the interpreter at a path, with a name or in the folder of
// an environment.
func findPython(given string) (string, error) {
	if given == "" {
		return "python3", nil
	}
	info, err := os.Stat(given)
	if err != nil || !info.IsDir() {
		if err != nil && strings.ContainsRune(given, filepath.Separator) {
			return "", status.Errorf(status.Unavailable, "the Python interpreter %q cannot be used: %v", given, err)
		}
		return given, nil
	}
	for _, name := range []string{"python3", "python"} {
		path := filepath.Join(given, "bin", name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", status.Errorf(status.Unavailable, "the folder %q has no bin/python3: it is not an environment of Python", given)
}
