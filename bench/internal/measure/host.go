package measure

import (
	"os"
	"strconv"
	"strings"
)

// cpuTime is the time of all cores since the machine started, and how much of it
// the host gave to other machines although this one wanted it.
type cpuTime struct{ all, stolen uint64 }

// readCPUTime reads the clocks of this machine; both are zero where the system
// does not tell.
func readCPUTime() cpuTime {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return cpuTime{}
	}
	return parseCPUTime(string(b))
}

// parseCPUTime reads the first line of /proc/stat: "cpu", then user, nice, system,
// idle, iowait, irq, softirq, steal and times of guests, which user holds already.
func parseCPUTime(text string) cpuTime {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	const steal = 8
	if len(fields) <= steal || fields[0] != "cpu" {
		return cpuTime{}
	}
	var t cpuTime
	for i, f := range fields[1 : steal+1] {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return cpuTime{}
		}
		t.all += n
		if i+1 == steal {
			t.stolen = n
		}
	}
	return t
}

// since returns the share of the cores' time that other machines had since an
// earlier reading.
func (t cpuTime) since(before cpuTime) float64 {
	if t.all <= before.all {
		return 0
	}
	return float64(t.stolen-before.stolen) / float64(t.all-before.all)
}
