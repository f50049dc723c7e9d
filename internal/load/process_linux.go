package load

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime reads the process's CPU clock. The clock's id is made from the
// process id as in clock_getcpuclockid(3): the complement shifted by three, and
// 2 for the scheduler's count.
func cpuTime(pid int) (time.Duration, error) {
	const scheduled = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &ts); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

func residentBytes(pid int) (int64, error) {
	path := fmt.Sprintf("/proc/%d/statm", pid)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(b)
	if len(fields) < 2 {
		return 0, fmt.Errorf("%s: %q has no second field", path, b)
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// parentIDs returns the parent of every process on the machine.
func parentIDs() (map[int]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	parents := make(map[int]int)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended since
		}
		if parent, ok := parentOf(b); ok {
			parents[pid] = parent
		}
	}
	return parents, nil
}

// parentOf returns the parent in a line of /proc/PID/stat: the second field
// after the command, which is in brackets and may itself have brackets and
// spaces.
func parentOf(stat []byte) (int, bool) {
	i := bytes.LastIndexByte(stat, ')')
	fields := bytes.Fields(stat[i+1:])
	if i < 0 || len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil
}
