package shm

import (
	"slices"
	"strings"
	"sync"

	"shoal/internal/status"
)

// ErrDisabled is the error of a client that asks for shared memory on a server
// that does not allow it.
var ErrDisabled = status.Errorf(status.Unsupported,
	"Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.")

// A Registry has the regions by name. A nil one is disabled.
type Registry struct {
	max int

	mu      sync.Mutex // protects the fields below
	regions map[string]*region
}

// An Info is a region's description for clients.
type Info struct {
	Name, Key    string
	Offset, Size uint64
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
	if name == "" {
		return ErrNoName("system")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.regions[name] != nil {
		return status.Errorf(status.AlreadyExists, "shared memory region '%s' already in manager", name)
	}
	if len(r.regions) >= r.max {
		return status.Errorf(status.Unavailable, "%d shared memory regions are registered, which is the most; unregister some or raise --client-shm-max-regions", r.max)
	}
	if strings.HasPrefix(strings.TrimLeft(key, "/"), reservedPrefix) {
		return status.Errorf(status.InvalidArgument, "cannot register shared memory region '%s' with reserved key '%s'; keys that begin with '%s' are the server's own", name, key, reservedPrefix)
	}
	file, length, err := open(key)
	if err != nil {
		return status.Wrap(status.Internal, err, "Unable to open shared memory region: '"+key+"'")
	}
	if size == 0 || offset > length || size > length-offset {
		_ = file.Close() // it was only opened
		return r.tooLargeLocked(name, key)
	}
	g := &region{Info: Info{Name: name, Key: key, Offset: offset, Size: size}, file: file}
	g.refs.Store(1)
	r.regions[name] = g
	return nil
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
func ErrNoName(kind string) error {
	return status.Errorf(status.InvalidArgument, "'region name' is necessary to register %s shared memory region", kind)
}

// Unregister removes a region, or all of them when name is empty. An unknown
// name is no error. Requests that use a region keep it until they end.
func (r *Registry) Unregister(name string) error {
	if r == nil {
		return ErrDisabled
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, g := range r.regions {
		if name == "" || n == name {
			delete(r.regions, n)
			g.release()
		}
	}
	return nil
}

// Status returns the description of a region, or of all, sorted by name, when
// name is empty.
func (r *Registry) Status(name string) ([]Info, error) {
	if r == nil {
		return nil, ErrDisabled
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Info
	for n, g := range r.regions {
		if name == "" || n == name {
			list = append(list, g.Info)
		}
	}
	if name != "" && len(list) == 0 {
		return nil, status.Errorf(status.NotFound, "Unable to find system shared memory region: '%s'", name)
	}
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Close removes all regions.
func (r *Registry) Close() {
	if r != nil {
		_ = r.Unregister("") // fails only when there is no registry
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
