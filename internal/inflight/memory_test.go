package inflight

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSystemMemoryIsTheLeastLimit(t *testing.T) {
	const meminfo = "MemFree:  1 kB\nMemTotal:       1024 kB\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"nothing is known", nil, 0},
		{"a machine without groups", map[string]string{"proc/meminfo": meminfo}, 1 << 20},
		{"a group's own limit", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "4096\n",
		}, 4096},
		{"the limit of a group above", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/memory.max": "8192\n", "sys/fs/cgroup/a/b/memory.max": "max\n",
		}, 8192},
		{"a container that sees its group as the root", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/host/path\n", "sys/fs/cgroup/memory.max": "16384\n",
		}, 16384},
		{"version 1", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "3:cpu:/c\n9:hugetlb,memory:/d\n",
			"sys/fs/cgroup/memory/d/memory.limit_in_bytes": "4096\n",
		}, 4096},
		{"version 1 without a limit", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "9:memory:/d\n",
			"sys/fs/cgroup/memory/d/memory.limit_in_bytes": "9223372036854771712\n",
		}, 1 << 20},
	} {
		root := t.TempDir()
		for path, text := range c.files {
			path = filepath.Join(root, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := systemMemory(root); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}
