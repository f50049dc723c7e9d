package cuda

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// A Usage is the state of a GPU as NVIDIA's management library tells it.
// Figures that a GPU does not have are negative.
type Usage struct {
	UUID        string
	Name        string
	Utilization float64 // from 0 to 1
	Total, Used float64 // memory in bytes
	Power       float64 // watts
	PowerLimit  float64
	Energy      float64 // joules since the driver was loaded
}

// A monitor reads the state of GPUs.
type monitor struct {
	fns     map[string]uintptr
	devices []uintptr
}

const monitorLibrary = "libnvidia-ml.so.1"

var openMonitor = sync.OnceValues(func() (*monitor, error) {
	handle, err := purego.Dlopen(monitorLibrary, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("%s was not found", monitorLibrary)
	}
	m := &monitor{fns: make(map[string]uintptr)}
	for _, name := range []string{
		"nvmlInit_v2", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetName",
		"nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetEnforcedPowerLimit",
		"nvmlDeviceGetTotalEnergyConsumption",
	} {
		if m.fns[name], err = purego.Dlsym(handle, name); err != nil {
			return nil, fmt.Errorf("%s has no %s", monitorLibrary, name)
		}
	}
	var n uint32
	if !m.call("nvmlInit_v2") || !m.call("nvmlDeviceGetCount_v2", uintptr(unsafe.Pointer(&n))) {
		return nil, fmt.Errorf("%s shows no GPU", monitorLibrary)
	}
	for i := range n {
		var d uintptr
		if m.call("nvmlDeviceGetHandleByIndex_v2", uintptr(i), uintptr(unsafe.Pointer(&d))) {
			m.devices = append(m.devices, d)
		}
	}
	return m, nil
})

// call reports whether a call succeeded.
//
//go:uintptrescapes
func (m *monitor) call(name string, args ...uintptr) bool {
	code, _, _ := purego.SyscallN(m.fns[name], args...)
	return uint32(code) == 0
}

// Usages returns the state of all GPUs of the machine.
func Usages() ([]Usage, error) {
	m, err := openMonitor()
	if err != nil {
		return nil, err
	}
	var list []Usage
	for _, d := range m.devices {
		list = append(list, m.usage(d))
	}
	return list, nil
}

func (m *monitor) usage(d uintptr) Usage {
	u := Usage{Utilization: -1, Total: -1, Used: -1, Power: -1, PowerLimit: -1, Energy: -1}
	var uuid, name [96]byte
	if m.call("nvmlDeviceGetUUID", d, uintptr(unsafe.Pointer(&uuid[0])), uintptr(len(uuid))) {
		u.UUID = text(uuid[:])
	}
	if m.call("nvmlDeviceGetName", d, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name))) {
		u.Name = text(name[:])
	}
	var rates [2]uint32 // of the GPU and its memory, in percent
	if m.call("nvmlDeviceGetUtilizationRates", d, uintptr(unsafe.Pointer(&rates[0]))) {
		u.Utilization = float64(rates[0]) / 100
	}
	var memory [3]uint64 // total, free, used
	if m.call("nvmlDeviceGetMemoryInfo", d, uintptr(unsafe.Pointer(&memory[0]))) {
		u.Total, u.Used = float64(memory[0]), float64(memory[2])
	}
	var milli uint32
	if m.call("nvmlDeviceGetPowerUsage", d, uintptr(unsafe.Pointer(&milli))) {
		u.Power = float64(milli) / 1000
	}
	if m.call("nvmlDeviceGetEnforcedPowerLimit", d, uintptr(unsafe.Pointer(&milli))) {
		u.PowerLimit = float64(milli) / 1000
	}
	var energy uint64
	if m.call("nvmlDeviceGetTotalEnergyConsumption", d, uintptr(unsafe.Pointer(&energy))) {
		u.Energy = float64(energy) / 1000
	}
	return u
}
