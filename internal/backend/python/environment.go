package python

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"shoal/internal/backend"
	"shoal/internal/model/modelpb"
	"shoal/internal/procs"
	"shoal/internal/status"
)

// threadVariables are read by libraries that start their own threads.
var threadVariables = []string{"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"}

// environment returns the variables of the worker at p: the server's, those
// that keep workers from disturbing each other, and the model's own.
func (b *Backend) environment(set settings, p backend.Placement) ([]string, error) {
	env := newVariables(b.options.Environ)
	for _, name := range []string{"PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT"} {
		env.drop(name) // they are for another interpreter, or for a terminal
	}
	env.set("PYTHONUNBUFFERED", "1")
	env.setMissing("PYTHONIOENCODING", "utf-8")
	threads := strconv.Itoa(max(1, procs.Native.Cores()/max(1, p.Count)))
	for _, name := range threadVariables {
		env.setMissing(name, threads)
	}
	if set.packed != "" {
		env.activate(set.packed)
	}
	if p.Kind == modelpb.ModelInstanceGroup_KIND_GPU {
		device, err := visibleDevice(env.get("CUDA_VISIBLE_DEVICES"), p.GPU)
		if err != nil {
			return nil, err
		}
		if p.Share > 1 && b.mps != nil {
			device = b.joinMPS(env, p.GPU, device)
		}
		env.set("CUDA_VISIBLE_DEVICES", device)
	}
	for _, v := range set.env {
		name, value, _ := strings.Cut(v, "=")
		env.set(name, value)
	}
	return env.list, nil
}

// joinMPS has a worker use the service by which processes share a GPU, if there
// is one, and returns the device's name there: numbers would count among those
// that the service was given, names are the same everywhere.
func (b *Backend) joinMPS(env *variables, gpu int, device string) string {
	id := uuid(gpu)
	if _, given := env.lookup("CUDA_VISIBLE_DEVICES"); given && id == "" {
		return device
	}
	for _, v := range b.mps.join() {
		name, value, _ := strings.Cut(v, "=")
		env.set(name, value)
		device = cmp.Or(id, device)
	}
	return device
}

// visibleDevice returns the name of a device by its index among those that the
// server may use.
func visibleDevice(visible string, gpu int) (string, error) {
	if visible == "" {
		return strconv.Itoa(gpu), nil
	}
	devices := strings.Split(visible, ",")
	if gpu >= len(devices) {
		return "", status.Errorf(status.InvalidArgument, "instance_group.gpus has %d, but CUDA_VISIBLE_DEVICES=%s has %d devices", gpu, visible, len(devices))
	}
	return strings.TrimSpace(devices[gpu]), nil
}

// variables are an environment. Each name is in it once.
type variables struct {
	list []string
	at   map[string]int
}

func newVariables(from []string) *variables {
	v := &variables{at: make(map[string]int)}
	for _, entry := range from {
		if name, value, ok := strings.Cut(entry, "="); ok {
			v.set(name, value)
		}
	}
	return v
}

func (v *variables) get(name string) string {
	value, _ := v.lookup(name)
	return value
}

func (v *variables) lookup(name string) (value string, ok bool) {
	i, ok := v.at[name]
	if !ok {
		return "", false
	}
	return v.list[i][len(name)+1:], true
}

func (v *variables) set(name, value string) {
	entry := name + "=" + value
	if i, ok := v.at[name]; ok {
		v.list[i] = entry
		return
	}
	v.at[name] = len(v.list)
	v.list = append(v.list, entry)
}

func (v *variables) setMissing(name, value string) {
	if _, ok := v.at[name]; !ok {
		v.set(name, value)
	}
}

func (v *variables) drop(name string) {
	i, ok := v.at[name]
	if !ok {
		return
	}
	v.list = append(v.list[:i], v.list[i+1:]...)
	delete(v.at, name)
	for n, j := range v.at {
		if j > i {
			v.at[n] = j - 1
		}
	}
}

// activate puts the programs and libraries of an environment's folder first, as
// its activate script does.
func (v *variables) activate(folder string) {
	v.prepend("PATH", filepath.Join(folder, "bin"))
	v.prepend("LD_LIBRARY_PATH", filepath.Join(folder, "lib"))
	v.set("CONDA_PREFIX", folder)
	v.drop("VIRTUAL_ENV")
	v.drop("PYTHONPATH")
}

func (v *variables) prepend(name, folder string) {
	if old := v.get(name); old != "" {
		folder = fmt.Sprintf("%s%c%s", folder, filepath.ListSeparator, old)
	}
	v.set(name, folder)
}
