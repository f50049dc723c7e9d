package inflight

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// SystemMemory returns how much memory the process may use: the machine's or
// its control groups', whichever is less. It returns 0 when that is unknown.
func SystemMemory() int64 { return systemMemory("/") }

// systemMemory is SystemMemory with the system's files under root.
func systemMemory(root string) int64 {
	least := meminfo(filepath.Join(root, "proc/meminfo"))
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return least
	}
	for line := range bytes.Lines(groups) {
		// Such as "0::/kubepods/pod1" or, in version 1, "9:memory:/docker/1".
		fields := strings.SplitN(strings.TrimSpace(string(line)), ":", 3)
		if len(fields) != 3 {
			continue
		}
		folder, file := "sys/fs/cgroup", "memory.max"
		switch {
		case strings.Contains(","+fields[1]+",", ",memory,"):
			folder, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case fields[1] != "":
			continue
		}
		// The limits of all groups above apply too. In a container the path may
		// be the host's and not exist: the root then has the limit.
		for path := filepath.Clean("/" + fields[2]); ; path = filepath.Dir(path) {
			if n := limitIn(filepath.Join(root, folder, path, file)); n > 0 && (least == 0 || n < least) {
				least = n
			}
			if path == "/" {
				break
			}
		}
	}
	return least
}

// limitIn returns the limit in a file of a control group, 0 for none.
func limitIn(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is not a number
	if err != nil {
		return 0
	}
	return n
}

// meminfo returns the memory of the machine, 0 when it is not known.
func meminfo(path string) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == "MemTotal:" {
			if kib, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				return kib << 10
			}
		}
	}
	return 0
}
