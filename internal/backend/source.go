package backend

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Without says what the version's folder has instead of the model's file, and
// what would help, as the end of a sentence.
func (s Source) Without(file string) string {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return ""
	}
	const most = 4
	var names []string
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), "."):
			continue
		case e.Type().IsRegular() && filepath.Ext(e.Name()) == filepath.Ext(file):
			return fmt.Sprintf("; %s has %s: `mv %s %s`, or write default_model_filename: %q into %s",
				s.Dir, e.Name(), filepath.Join(s.Dir, e.Name()), filepath.Join(s.Dir, file), e.Name(), filepath.Join(s.Root, "config.pbtxt"))
		case len(names) == most:
			names = append(names, "...")
		case len(names) < most:
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return fmt.Sprintf("; %s is empty: put the model's file there", s.Dir)
	}
	return fmt.Sprintf("; %s has %s", s.Dir, strings.Join(names, ", "))
}
