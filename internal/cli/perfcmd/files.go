package perfcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// checkFiles finds out before an hour's run that its result cannot be written.
func (f *flags) checkFiles() error {
	var errs []error
	if f.export != "" {
		if _, err := os.Stat(f.export); err == nil {
			return fmt.Errorf("--profile-export-file %s is there already; name a new one", f.export)
		}
	}
	for _, file := range []struct{ flag, path string }{
		{"-f", f.csv},
		{"--profile-export-file", f.export},
		{"--json", noDash(f.json)},
		{"--hdr-file", f.hdr},
		{"--html", f.pictures.html},
		{"--plot", f.pictures.plot},
	} {
		if file.path == "" {
			continue
		}
		if err := writable(file.path); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file.flag, err))
		}
	}
	return errors.Join(errs...)
}

// writable says why a file cannot be written. It leaves no trace.
func writable(path string) error {
	_, err := os.Stat(path)
	created := errors.Is(err, fs.ErrNotExist)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	err = file.Close()
	if created {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
