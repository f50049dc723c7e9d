package load

import "time"

// A Process is a running process that is observed from outside.
type Process struct{ pid int }

// Watch returns the process with this id. It reads nothing yet.
func Watch(pid int) Process { return Process{pid} }

// PID returns the process's id.
func (p Process) PID() int { return p.pid }

// CPU returns the user and system time of all threads that the process has and
// had, in nanoseconds rather than the 10 ms ticks of /proc/PID/stat. Children
// are not included.
func (p Process) CPU() (time.Duration, error) { return cpuTime(p.pid) }

// RSS returns the resident memory in bytes, shared pages included.
func (p Process) RSS() (int64, error) { return residentBytes(p.pid) }

// Descendants returns the processes that p started, directly or indirectly.
func (p Process) Descendants() ([]Process, error) {
	parents, err := parentIDs()
	if err != nil {
		return nil, err
	}
	var found []Process
	for pid := range parents {
		if descends(parents, pid, p.pid) {
			found = append(found, Process{pid})
		}
	}
	return found, nil
}

// descends reports whether ancestor is an ancestor of pid. The table is not
// read at one instant, so a chain may be broken or, with reused ids, even a
// cycle.
func descends(parents map[int]int, pid, ancestor int) bool {
	for range parents {
		parent, ok := parents[pid]
		if !ok || pid == ancestor {
			return false
		}
		if parent == ancestor {
			return true
		}
		pid = parent
	}
	return false
}

// CPU returns the CPU time of all of ps together. A process that has ended
// counts as zero.
func CPU(ps []Process) time.Duration {
	var sum time.Duration
	for _, p := range ps {
		if t, err := p.CPU(); err == nil {
			sum += t
		}
	}
	return sum
}
