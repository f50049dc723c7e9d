package metrics

import "github.com/prometheus/procfs"

// machine reads the state from /proc.
func machine() (machineState, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return machineState{}, err
	}
	stat, err := fs.Stat()
	if err != nil {
		return machineState{}, err
	}
	mem, err := fs.Meminfo()
	if err != nil {
		return machineState{}, err
	}
	t := &stat.CPUTotal
	s := machineState{busy: t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal}
	s.total = s.busy + t.Idle + t.Iowait
	if mem.MemTotalBytes != nil && mem.MemAvailableBytes != nil {
		s.memory = float64(*mem.MemTotalBytes)
		s.memused = s.memory - float64(*mem.MemAvailableBytes)
	}
	return s, nil
}
