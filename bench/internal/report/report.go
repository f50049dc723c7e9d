// Package report says on what machine and when a benchmark ran, and writes its
// results as JSON and as a page of Markdown.
package report

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Facts are what one must know to read figures.
type Facts struct {
	Date    string `json:"date"`
	Commit  string `json:"commit"`
	CPU     string `json:"cpu"`
	Cores   int    `json:"cores"`
	Memory  string `json:"memory"`
	Kernel  string `json:"kernel"`
	Go      string `json:"go"`
	Load    string `json:"load_average"` // of the last 1, 5 and 15 minutes, when the run began
	Command string `json:"command"`
}

// Gather finds the facts. What the machine does not tell is empty.
func Gather() Facts {
	return Facts{
		Date:    time.Now().UTC().Format("2006-01-02 15:04 MST"),
		Commit:  output("git", "describe", "--always", "--dirty"),
		CPU:     field("/proc/cpuinfo", "model name"),
		Cores:   runtime.NumCPU(),
		Memory:  field("/proc/meminfo", "MemTotal"),
		Kernel:  output("uname", "-sr"),
		Go:      runtime.Version(),
		Load:    loadAverage(),
		Command: command(),
	}
}

// Markdown returns the facts as a list.
func (f Facts) Markdown() string {
	return fmt.Sprintf("- %s, commit %s, %s\n- %s, %d cores, %s, %s\n- load average at the start: %s\n- command: `%s`\n",
		f.Date, f.Commit, f.Go, f.CPU, f.Cores, f.Memory, f.Kernel, f.Load, f.Command)
}

// Write writes the value as NAME.json and the page as NAME.md under dir.
func Write(dir, name string, value any, page string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name+".json"), append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".md"), []byte(page), 0o644)
}

// command returns this process's own command line, as one runs it from source.
func command() string {
	name := filepath.Base(os.Args[0])
	return strings.Join(append([]string{"go run ./bench/" + name}, os.Args[1:]...), " ")
}

// output runs a command that may not be there.
func output(name string, args ...string) string {
	b, err := exec.Command(name, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// field returns the first value of a "name : value" line in a file.
func field(path, name string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(b)); err == nil && len(fields) >= 3 {
		return strings.Join(fields[:3], " ")
	}
	return ""
}
