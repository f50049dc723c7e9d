package repository

import (
	"path/filepath"
	"testing"

	"shoal/internal/status"
)

func TestConfigChoosesTheFile(t *testing.T) {
	e := Entry{Name: "m", Dir: tree(t, map[string]string{
		"config.pbtxt":       `name: "m" backend: "plain"`,
		"configs/gpu.pbtxt":  `backend: "gpu"`,
		"configs/none.txt":   `backend: "wrong"`,
		"configs/bad.pbtxt":  `backend: 3`,
		"configs/dir.pbtxt/": "",
	})}
	for _, c := range []struct{ name, configName, want string }{
		{"no name", "", "plain"},
		{"a name that has a file", "gpu", "gpu"},
		{"a name that has none", "none", "plain"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := e.Config(c.configName)
			if err != nil {
				t.Fatal(err)
			}
			if cfg.Backend != c.want || cfg.Name != "m" {
				t.Errorf("got backend %q and name %q, want %q and m", cfg.Backend, cfg.Name, c.want)
			}
		})
	}
	_, err := e.Config("bad")
	checkError(t, err, status.InvalidArgument, filepath.Join("configs", "bad.pbtxt")+":1:10: backend: expected a string")
	_, err = e.Config("dir")
	checkError(t, err, status.InvalidArgument, "it is not a regular file")
	_, err = e.Config("../m/config")
	checkError(t, err, status.InvalidArgument, "--model-config-name")
}

func TestConfigWithoutAFileHasTheModelsName(t *testing.T) {
	cfg, err := Entry{Name: "m", Dir: t.TempDir()}.Config("")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Name != "m" {
		t.Errorf("name: got %q, want m", cfg.Name)
	}
}

func TestConfigOfAnotherModel(t *testing.T) {
	_, err := Entry{Name: "m", Dir: tree(t, map[string]string{"config.pbtxt": `name: "other"`})}.Config("")
	checkError(t, err, status.InvalidArgument, "unexpected directory name 'm' for model 'other', directory name must equal model name")
}

func TestConfigOfAFolderThatIsGone(t *testing.T) {
	_, err := Entry{Name: "m", Dir: filepath.Join(t.TempDir(), "m")}.Config("")
	checkError(t, err, status.NotFound, `model "m": read `)
}
