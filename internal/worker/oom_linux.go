package worker

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// An oomCounter reports whether the kernel has killed a process in our control
// group for lack of memory since it was made.
type oomCounter struct {
	file   string
	before int64
}

// newOOMCounter finds the counter; where there is none it never rises.
func newOOMCounter() oomCounter {
	for _, f := range oomFiles() {
		if n, ok := readOOMKills(f); ok {
			return oomCounter{f, n}
		}
	}
	return oomCounter{}
}

func (c oomCounter) rose() bool {
	if c.file == "" {
		return false
	}
	n, ok := readOOMKills(c.file)
	return ok && n > c.before
}

// oomFiles lists where the counter may be: in our own group, or at the root
// that a container sees; version 2 before version 1.
func oomFiles() []string {
	const root = "/sys/fs/cgroup"
	var files []string
	text, _ := os.ReadFile("/proc/self/cgroup")
	for row := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(row), ":", 3)
		switch {
		case len(f) != 3:
		case f[1] == "":
			files = append(files, filepath.Join(root, f[2], "memory.events"))
		case f[1] == "memory":
			files = append(files, filepath.Join(root, "memory", f[2], "memory.oom_control"))
		}
	}
	return append(files, filepath.Join(root, "memory.events"), filepath.Join(root, "memory/memory.oom_control"))
}

func readOOMKills(file string) (int64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	return parseOOMKills(text)
}

// parseOOMKills reads the row "oom_kill N".
func parseOOMKills(text []byte) (int64, bool) {
	for row := range bytes.Lines(text) {
		if v, ok := bytes.CutPrefix(row, []byte("oom_kill ")); ok {
			n, err := strconv.ParseInt(string(bytes.TrimSpace(v)), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
