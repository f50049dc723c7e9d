package shm

import (
	"math"
	"slices"
	"strings"
	"sync"

	"shoal/internal/status"
)

// ErrDisabled is the error of a client that asks for shared memory on a server
// that does not allow it.
var ErrDisabled = status.Errorf(status.Unsupported,
	"Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.")

// A Kind is whose memory a region is.
type Kind string

// The kinds of memory.
const (
	System Kind = "system"
	CUDA   Kind = "cuda" // a GPU's
)

// A Registry has the regions by name. A nil one is disabled.
type Registry struct {
	// OpenCUDA opens the memory of a GPU behind the handle of another process;
	// nil where there is no GPU.
	OpenCUDA func(device int, handle []byte) (Memory, error)

	max int

	mu      sync.Mutex // protects the fields below
	regions map[string]*region
}

// An Info is a region's description for clients.
type Info struct {
	Kind         Kind
	Name, Key    string
	Offset, Size uint64
	Device       int // the GPU
}

// NewRegistry returns a registry that accepts up to max regions; each holds a
// file open.
func NewRegistry(max int) *Registry {
	return &Registry{max: max, regions: make(map[string]*region)}
}

// reservedPrefix begins the names of memory between a server and its own
// workers.
const reservedPrefix = "triton_python_backend_shm_region_"

// Register registers size bytes from offset on, of the memory object with that
// key, as name.
func (r *Registry) Register(name, key string, offset, size uint64) error {
	if r == nil {
		return ErrDisabled
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.roomLocked(System, name); err != nil {
		return err
	}
	if strings.HasPrefix(strings.TrimLeft(key, "/"), reservedPrefix) {
		return status.Errorf(status.InvalidArgument, "cannot register shared memory region '%s' with reserved key '%s'; keys that begin with '%s' are the server's own", name, key, reservedPrefix)
	}
	f, length, err := open(key)
	if err != nil {
		return status.Wrap(status.Internal, err, "Unable to open shared memory region: '"+key+"'")
	}
	if size == 0 || offset > length || size > length-offset {
		_ = f.Close() // it was only opened
		return r.tooLargeLocked(name, key)
	}
	r.addLocked(Info{Kind: System, Name: name, Key: key, Offset: offset, Size: size}, file{f})
	return nil
}

// RegisterCUDA registers size bytes of a GPU's memory, by the handle of the
// process that has it, as name.
func (r *Registry) RegisterCUDA(name string, handle []byte, device int64, size uint64) error {
	if r == nil {
		return ErrDisabled
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.roomLocked(CUDA, name); err != nil {
		return err
	}
	if r.OpenCUDA == nil {
		return status.Errorf(status.InvalidArgument, "failed to register CUDA shared memory region: '%s', GPUs not supported", name)
	}
	if device < 0 || device > math.MaxInt32 {
		return status.Errorf(status.InvalidArgument, "failed to register CUDA shared memory region '%s': there is no GPU %d", name, device)
	}
	m, err := r.OpenCUDA(int(device), handle)
	if err != nil {
		return status.Errorf(status.InvalidArgument, "failed to register CUDA shared memory region '%s': %v", name, err)
	}
	if there, err := m.Size(); err != nil || size == 0 || size > there {
		_ = m.Close() // it was only opened
		return status.Errorf(status.InvalidArgument, "failed to register CUDA shared memory region '%s': invalid args: %d bytes of memory that has %d", name, size, there)
	}
	r.addLocked(Info{Kind: CUDA, Name: name, Device: int(device), Size: size}, m)
	return nil
}

// roomLocked returns why no region of that name can be registered.
func (r *Registry) roomLocked(k Kind, name string) error {
	switch {
	case name == "":
		return ErrNoName(k)
	case r.regions[name] != nil:
		return status.Errorf(status.AlreadyExists, "shared memory region '%s' already in manager", name)
	case len(r.regions) >= r.max:
		return status.Errorf(status.Unavailable, "%d shared memory regions are registered, which is the most; unregister some or raise --client-shm-max-regions", r.max)
	}
	return nil
}

func (r *Registry) addLocked(i Info, m Memory) {
	g := &region{Info: i, memory: m}
	g.refs.Store(1)
	r.regions[i.Name] = g
}

// tooLargeLocked returns the error for a region beyond the end of its memory.
// Triton's text depends on whether it already has that memory.
func (r *Registry) tooLargeLocked(name, key string) error {
	for _, g := range r.regions {
		if g.Key == key {
			return status.Errorf(status.Internal, "Invalid shared memory region: '%s'", key)
		}
	}
	return status.Errorf(status.InvalidArgument, "failed to register shared memory region '%s': invalid args", name)
}

// ErrNoName answers a registration without a name.
func ErrNoName(kind Kind) error {
	return status.Errorf(status.InvalidArgument, "'region name' is necessary to register %s shared memory region", kind)
}

// Unregister removes a region of a kind, or all of them when name is empty. An
// unknown name is no error. Requests that use a region keep it until they end.
func (r *Registry) Unregister(k Kind, name string) error {
	if r == nil {
		return ErrDisabled
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, g := range r.regions {
		if g.Kind == k && (name == "" || n == name) {
			delete(r.regions, n)
			g.release()
		}
	}
	return nil
}

// Status returns the description of a region of a kind, or of all, sorted by
// name, when name is empty.
func (r *Registry) Status(k Kind, name string) ([]Info, error) {
	if r == nil {
		return nil, ErrDisabled
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Info
	for n, g := range r.regions {
		if g.Kind == k && (name == "" || n == name) {
			list = append(list, g.Info)
		}
	}
	if name != "" && len(list) == 0 {
		return nil, status.Errorf(status.NotFound, "Unable to find %s shared memory region: '%s'", k, name)
	}
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Close removes all regions.
func (r *Registry) Close() {
	if r != nil {
		_ = r.Unregister(System, "") // fails only when there is no registry
		_ = r.Unregister(CUDA, "")
	}
}

// Use returns size bytes from offset on of a region. The caller must release
// them.
func (r *Registry) Use(name string, offset, size uint64) (*Part, error) {
	if r == nil {
		return nil, ErrDisabled
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.regions[name]
	switch {
	case g == nil:
		return nil, status.Errorf(status.NotFound, "Unable to find shared memory region: '%s'", name)
	case offset >= g.Size:
		return nil, status.Errorf(status.InvalidArgument, "Invalid offset for shared memory region: '%s'", name)
	case size == 0 || size > g.Size-offset:
		return nil, status.Errorf(status.InvalidArgument, "Invalid offset + byte size for shared memory region: '%s'", name)
	}
	g.refs.Add(1)
	return &Part{region: g, offset: g.Offset + offset, size: size}, nil
}
