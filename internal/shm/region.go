package shm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"shoal/internal/status"
)

// A Memory is memory that a client lends. Size may change: a client can cut it
// short.
type Memory interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (uint64, error)
}

// A file is memory of the system.
type file struct{ *os.File }

// Size implements Memory.
func (f file) Size() (uint64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return uint64(info.Size()), nil
}

// A region is a client's memory. It is closed when the registry and the last
// request have released it.
type region struct {
	Info
	memory Memory
	refs   atomic.Int64
}

func (g *region) release() {
	if g.refs.Add(-1) == 0 {
		_ = g.memory.Close() // nothing was buffered
	}
}

// A Part is a range of a region that one request uses.
type Part struct {
	region       *region
	offset, size uint64
}

// Size returns the bytes of the part.
func (p *Part) Size() uint64 { return p.size }

// Read fills b, which has the part's size, with its content.
func (p *Part) Read(b []byte) error {
	_, err := p.region.memory.ReadAt(b, int64(p.offset))
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the memory object was cut short: %w", err)
	}
	if err != nil {
		return status.Wrap(status.Internal, err, "Unable to read shared memory region: '"+p.region.Name+"'")
	}
	return nil
}

// Write writes the content of an output, which may be shorter than the part.
func (p *Part) Write(output string, b []byte) error {
	if uint64(len(b)) > p.size {
		return status.Errorf(status.Internal, "shared memory size specified with the request for output '%s' (%d bytes) should be at least %d bytes to hold the results",
			output, p.size, len(b))
	}
	// Do not extend memory that the client truncated: a write beyond the end
	// would, and nobody would read it.
	size, err := p.region.memory.Size()
	if err == nil && size < p.offset+uint64(len(b)) {
		err = fmt.Errorf("the memory object was cut short to %d bytes", size)
	}
	if err == nil {
		_, err = p.region.memory.WriteAt(b, int64(p.offset))
	}
	if err != nil {
		return status.Wrap(status.Internal, err, "Unable to write shared memory region: '"+p.region.Name+"'")
	}
	return nil
}

// Release ends the use of the part.
func (p *Part) Release() { p.region.release() }
