package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shoal/internal/status"
)

const jsonInput = `{"backend": "identity", "max_batch_size": 4,
	"input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [2]}], "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [2]}]}`

func maxBatch(t *testing.T, e *Engine, name string) int32 {
	t.Helper()
	cfg, err := e.Config(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	return cfg.GetMaxBatchSize()
}

func TestAConfigOverrideHoldsUntilTheFileChanges(t *testing.T) {
	dir := repo(t, map[string]string{"m/config.pbtxt": oneInput, "m/1/": ""})
	e, _ := controlled(t, dir)
	load := func(o Override, want int32) {
		t.Helper()
		if err := e.Load(t.Context(), "m", o); err != nil {
			t.Fatal(err)
		}
		if got := maxBatch(t, e, "m"); got != want {
			t.Errorf("got max_batch_size %d, want %d", got, want)
		}
	}
	load(Override{Config: jsonInput}, 4)
	load(Override{}, 4)
	touch(t, filepath.Join(dir, "m", "config.pbtxt"), 1)
	load(Override{}, 0)
	load(Override{Config: jsonInput}, 4)
	if err := e.Unload(t.Context(), "m", false); err != nil {
		t.Fatal(err)
	}
	load(Override{}, 0)
}

func TestFilesTakeThePlaceOfTheFolder(t *testing.T) {
	dir := repo(t, map[string]string{"m/config.pbtxt": oneInput, "m/1/": ""})
	temp := t.TempDir()
	e, _ := controlled(t, dir)
	e.opt.TempDir = func() (string, error) { return temp, nil }
	folders := func(want int) {
		t.Helper()
		e.work.Wait()
		if got, _ := os.ReadDir(temp); len(got) != want {
			t.Errorf("got %d folders of files, want %d", len(got), want)
		}
	}
	files := Override{Config: jsonInput, Files: map[string][]byte{"2/model": []byte("x"), "3/deep/er/model": nil}}
	for _, name := range []string{"m", "new"} {
		if err := e.Load(t.Context(), name, files); err != nil {
			t.Fatal(err)
		}
	}
	folders(2)
	wantStates(t, e, "m 1 UNAVAILABLE unloaded", "m 3 READY", "new 3 READY")
	if err := e.Load(t.Context(), "m", files); err != nil { // another folder, so loaded anew
		t.Fatal(err)
	}
	folders(2)
	if err := e.Load(t.Context(), "m", Override{}); err != nil {
		t.Fatal(err)
	}
	folders(1)
	wantStates(t, e, "m 1 READY", "m 3 UNAVAILABLE unloaded", "new 3 READY")
	if err := e.Load(t.Context(), "new", Override{}); status.CodeOf(err) != status.Internal || !strings.HasPrefix(status.Public(err), "failed to load 'new', failed to poll from model repository") {
		t.Errorf("a model that is in no repository: got %v", err)
	}
	if err := e.Unload(t.Context(), "new", false); err != nil {
		t.Fatal(err)
	}
	folders(0)
}

func TestAClientsConfigurationDoesNotFollowLinks(t *testing.T) {
	secret := repo(t, map[string]string{"secret": "one\ntwo\n"})
	dir := repo(t, map[string]string{"m/config.pbtxt": oneInput, "m/1/model": "", "m/1/own": "", "m/labels": "a\n", "m/warmup/": ""})
	for _, link := range []string{"m/labels.out", "m/warmup/data.out", "m/1/model.out"} {
		if err := os.Symlink(filepath.Join(secret, "secret"), filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"m/labels.in": "labels", "m/1/model.in": "own"} { // as Kubernetes mounts files
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	e, _ := controlled(t, dir)
	config := func(label, more string) string {
		return `{"backend": "identity", "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1, 2]}],
			"output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1, 2], "label_filename": "` + label + `"}]` + more + `}`
	}
	const warmup = `, "model_warmup": [{"name": "s", "batch_size": 1, "inputs": {"INPUT0": {"data_type": "TYPE_FP32", "dims": [1, 2], "input_data_file": "data.out"}}}]`
	for name, text := range map[string]string{
		"labels":         config("labels.out", ""),
		"warm-up data":   config("", warmup),
		"the model":      config("", `, "default_model_filename": "model.out"`),
		"one of several": config("", `, "cc_model_filenames": {"9.0": "model.out"}`),
	} {
		err := e.Load(t.Context(), "m", Override{Config: text})
		if got := status.Public(err); !strings.Contains(got, "is not inside") || !e.ModelReady("m", 1) {
			t.Errorf("%s: got %q, want it refused and the old one serving", name, got)
		}
	}
	if err := e.Load(t.Context(), "m", Override{Config: config("labels.in", `, "default_model_filename": "model.in"`)}); err != nil {
		t.Errorf("links inside the folder: %v", err)
	}
}

func TestOverridesAreChecked(t *testing.T) {
	dir := repo(t, map[string]string{"m/config.pbtxt": oneInput, "m/1/": ""})
	temp := t.TempDir()
	e, _ := controlled(t, dir)
	e.opt.TempDir = func() (string, error) { return temp, nil }
	const poll = "failed to load 'm', failed to poll from model repository: "
	file := func(path string) Override { return Override{Config: jsonInput, Files: map[string][]byte{path: nil}} }
	tests := []struct {
		name string
		o    Override
		want string
	}{
		{"no JSON", Override{Config: "{nope"}, poll + "Invalid config override: "},
		{"an unknown field", Override{Config: `{"nope": 1}`}, poll + `Invalid config override: (line 1:2): unknown field "nope"`},
		{"another name", Override{Config: `{"name": "other"}`}, poll + "Invalid config override: unexpected directory name 'm' for model 'other', directory name must equal model name"},
		{"files without a configuration", Override{Files: map[string][]byte{"1/model": nil}}, poll + "Load parameter 'config' must be specified for model file override"},
		{"up and out", file("../other/1/model"), poll + "file override '../other/1/model' is not a path inside the model's folder"},
		{"down and up", file("1/../../m"), poll + "file override '1/../../m'"},
		{"not plain", file("1/./model"), poll + "file override '1/./model'"},
		{"absolute", file("/etc/passwd"), poll + "file override '/etc/passwd'"},
		{"a folder", file("1/"), poll + "file override '1/'"},
		{"none", file(""), poll + "file override ''"},
		{"a NUL", file("1/a\x00b"), poll + "file override '1/a\x00b'"},
		{"a backslash", file(`1\model`), poll + `file override '1\model'`},
		{"a file and a folder of one name", Override{Config: jsonInput, Files: map[string][]byte{"1": nil, "1/model": nil}}, poll + "file override '1/model': "},
		{"no version", file("labels.txt"), "load failed for model 'm': at least one version must be available under the version policy of model 'm'\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := e.Load(t.Context(), "m", tt.o); err == nil || !strings.HasPrefix(status.Public(err), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if !e.ModelReady("m", 1) {
				t.Error("got the model not ready, want the old one to go on")
			}
			if left, _ := os.ReadDir(temp); len(left) > 0 {
				t.Errorf("got %v left behind", left)
			}
		})
	}
}
