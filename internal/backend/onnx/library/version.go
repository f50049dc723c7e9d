package library

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

var versionPattern = regexp.MustCompile(`\d+(\.\d+)+`)

// versionIn returns the version that a library's path shows, in its own name or
// its folder's; nil when neither does.
func versionIn(path string) []int {
	for _, name := range []string{filepath.Base(path), filepath.Base(filepath.Dir(path))} {
		if v := versionPattern.FindString(name); v != "" {
			return parseVersion(v)
		}
	}
	return nil
}

func parseVersion(s string) []int {
	var v []int
	for part := range strings.SplitSeq(s, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil
		}
		v = append(v, n)
	}
	return v
}
