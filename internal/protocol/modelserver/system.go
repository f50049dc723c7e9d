package modelserver

import (
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// A sample is a value about the machine.
type sample struct {
	name  string
	value float64
}

// cpuTimes are how long the processors have run since the start, and idled.
type cpuTimes struct{ all, idle float64 }

// system returns the state of the machine as far as it can be read. Last are the
// times at the last call.
func system(last *cpuTimes) []sample {
	var list []sample
	if text, err := os.ReadFile("/proc/stat"); err == nil {
		now := readCPU(string(text))
		if spent := now.all - last.all; spent > 0 {
			list = append(list, sample{"CPUUtilization", tenths(100 * (1 - (now.idle-last.idle)/spent))})
		}
		*last = now
	}
	var disk syscall.Statfs_t
	if syscall.Statfs("/", &disk) == nil {
		const giga = 1 << 30
		block := float64(disk.Bsize)
		used, free := float64(disk.Blocks-disk.Bfree)*block, float64(disk.Bavail)*block
		list = append(list, sample{"DiskAvailable", free / giga}, sample{"DiskUsage", used / giga}, sample{"DiskUtilization", tenths(100 * used / max(used+free, 1))})
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		const mega = 1 << 10 // the file has kilobytes
		memory := readMemory(string(text))
		total, available := memory["MemTotal"], memory["MemAvailable"]
		if total > 0 {
			list = append(list, sample{"MemoryAvailable", available / mega}, sample{"MemoryUsed", (total - available) / mega},
				sample{"MemoryUtilization", tenths(100 * (total - available) / total)})
		}
	}
	return list
}

func tenths(f float64) float64 { return math.Round(10*f) / 10 }

// readCPU reads the first line of /proc/stat.
func readCPU(text string) (t cpuTimes) {
	line, _, _ := strings.Cut(text, "\n")
	for i, field := range strings.Fields(line) {
		n, err := strconv.ParseFloat(field, 64)
		if err != nil || i > 8 { // the name; and guests, which are counted before
			continue
		}
		t.all += n
		if i == 4 || i == 5 { // idle, and idle while a disk is waited for
			t.idle += n
		}
	}
	return t
}

// readMemory reads /proc/meminfo.
func readMemory(text string) map[string]float64 {
	values := map[string]float64{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, ":")
		if fields := strings.Fields(rest); ok && len(fields) > 0 {
			values[name], _ = strconv.ParseFloat(fields[0], 64) // 0 for what is no number
		}
	}
	return values
}
