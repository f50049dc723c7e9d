package load

import "time"

// A Process is a running process that is watched from outside.
type Process struct{ pid int }

// Watch returns the process with this id. Nothing is looked up until something
// is asked of it.
func Watch(pid int) Process { return Process{pid} }

// PID returns the process's id.
func (p Process) PID() int { return p.pid }

// CPU returns the user and system time of all threads the process has and had,
// in nanoseconds and not in the 10 ms ticks of /proc/PID/stat. Children are not
// part of it.
func (p Process) CPU() (time.Duration, error) { return cpuTime(p.pid) }

// RSS returns the resident memory in bytes, shared pages included.
func (p Process) RSS() (int64, error) { return residentBytes(p.pid) }

// Descendants returns the processes that p started, and those that they started.
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

// descends says whether ancestor is above pid. The table is not read in one
// instant, so a chain may be broken or, with reused ids, even a ring.
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

// CPU returns the CPU time of all of ps together. One that has ended counts for
// nothing.
func CPU(ps []Process) time.Duration {
	var sum time.Duration
	for _, p := range ps {
		if t, err := p.CPU(); err == nil {
			sum += t
		}
	}
	return sum
}
