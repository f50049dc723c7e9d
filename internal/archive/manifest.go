// Package archive reads and writes model archives of Multi Model Server and
// TorchServe: .mar files, which are zip files of a model's folder with a manifest,
// and the same in tar.gz files and plain folders. The content comes from outside:
// whatever it is, nothing is written outside the folder that it is extracted to,
// and no more than the limits allow. Nothing here knows a server.
package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// ManifestPath is where an archive has its manifest.
const ManifestPath = "MAR-INF/MANIFEST.json"

// A Manifest is an archive's description of its model, in the members that both
// servers know. What an archive does not have is empty.
type Manifest struct {
	Runtime string  `json:"runtime"`
	Engine  *Engine `json:"engine"`
	Model   *Model  `json:"model"`

	// Present says that the archive has a manifest at all.
	Present bool `json:"-"`
}

// An Engine is what the model was trained with.
type Engine struct {
	Name    string `json:"engineName"`
	Version text   `json:"engineVersion"`
}

// A Model is the part of a manifest about the model itself.
type Model struct {
	Name             string `json:"modelName"`
	Version          text   `json:"modelVersion"`
	Handler          string `json:"handler"`
	SerializedFile   string `json:"serializedFile"`
	ModelFile        string `json:"modelFile"`
	RequirementsFile string `json:"requirementsFile"`
	ConfigFile       string `json:"configFile"`
	Envelope         string `json:"envelope"`
}

// A text is a string that manifests also have as a number.
type text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, (*string)(t))
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}
	*t = text(n)
	return nil
}

// String returns the text.
func (t text) String() string { return string(t) }

// maxManifest is the most bytes of a manifest.
const maxManifest = 1 << 20

// ErrManifest is the error of a manifest that is no JSON object of the expected
// members.
var ErrManifest = errors.New("the manifest cannot be parsed")

// ParseManifest reads the text of a manifest. Unknown members are ignored.
func ParseManifest(b []byte) (Manifest, error) {
	m := Manifest{Present: true, Model: &Model{}} // null makes it nil
	if len(b) > maxManifest {
		return m, fmt.Errorf("%w: it has more than %d bytes", ErrManifest, maxManifest)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	if m.Runtime == "" {
		m.Runtime = "python"
	}
	return m, nil
}

// ReadManifest reads the manifest of an extracted archive, or of a model's folder.
// A folder without one has the default manifest.
func ReadManifest(dir string) (Manifest, error) {
	f, err := os.Open(filepath.Join(dir, filepath.FromSlash(ManifestPath)))
	if errors.Is(err, fs.ErrNotExist) {
		if m, ok, err := readOldManifest(dir); ok || err != nil {
			return m, err
		}
		return Manifest{Runtime: "python", Model: &Model{}}, nil
	}
	if err != nil {
		return Manifest{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return Manifest{}, err
	}
	return ParseManifest(b)
}

// readOldManifest reads the manifest of version 0.x, which is at the top.
func readOldManifest(dir string) (m Manifest, found bool, err error) {
	f, err := os.Open(filepath.Join(dir, "MANIFEST.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return Manifest{}, false, nil
	}
	if err != nil {
		return Manifest{}, false, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return Manifest{}, false, err
	}
	var old struct {
		Engine map[string]text
		Model  struct {
			Name    string `json:"Model-Name"`
			Service string `json:"Service"`
		}
	}
	if err := json.Unmarshal(b, &old); err != nil {
		return Manifest{}, false, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	if old.Model.Service == "" {
		return Manifest{}, false, ErrNoService
	}
	m = Manifest{Runtime: "python", Present: true, Model: &Model{Name: old.Model.Name, Version: "snapshot", Handler: old.Model.Service}}
	for name, version := range old.Engine {
		m.Engine = &Engine{Name: name, Version: version}
	}
	return m, true, nil
}

// ErrNoService is the error of a manifest of version 0.x without a handler.
var ErrNoService = fmt.Errorf("%s", textNoService)

// The texts that users of the originals know.
const (
	textName      = "Model name contains special characters"
	textNoService = "Missing Service entry in MANIFEST.json"
)

// checkName checks the name of a model for an archiver.
func checkName(name string) error {
	for i, c := range name {
		letter := c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '_' && c != '-' && c != '.') {
			return fmt.Errorf("%s. The allowed pattern is ^[A-Za-z0-9][A-Za-z0-9_\\-.]*$, and the name is %s", textName, strconv.Quote(name))
		}
	}
	if name == "" {
		return errors.New("the model's name is empty; give one with --model-name")
	}
	return nil
}
