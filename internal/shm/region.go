package shm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"shoal/internal/status"
)

// A region is a client's memory. Its file is closed when the registry and the
// last request have released it.
type region struct {
	Info
	file *os.File
	refs atomic.Int64
}

func (g *region) release() {
	if g.refs.Add(-1) == 0 {
		_ = g.file.Close() // nothing was buffered
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
	_, err := p.region.file.ReadAt(b, int64(p.offset))
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
	info, err := p.region.file.Stat()
	if err == nil && uint64(info.Size()) < p.offset+uint64(len(b)) {
		err = fmt.Errorf("the memory object was cut short to %d bytes", info.Size())
	}
	if err == nil {
		_, err = p.region.file.WriteAt(b, int64(p.offset))
	}
	if err != nil {
		return status.Wrap(status.Internal, err, "Unable to write shared memory region: '"+p.region.Name+"'")
	}
	return nil
}

// Release ends the use of the part.
func (p *Part) Release() { p.region.release() }
