// Package compression has gzip and deflate for all protocols. Readers and writers
// are large, so they are kept and used again. All functions may be called from any
// goroutine; a reader or writer belongs to one at a time.
package compression

import (
	"bytes"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
)

// A Format is how bytes are compressed.
type Format uint8

// The formats.
const (
	Identity Format = iota // not at all: it has no readers and writers
	Gzip
	Deflate // in zlib's format, as the name means in HTTP and gRPC
	formatCount
)

var names = [formatCount]string{"identity", "gzip", "deflate"}

// String returns the format's name in HTTP and gRPC.
func (f Format) String() string { return names[f] }

// Parse returns the format with that name, in any case, and whether there is one.
func Parse(name []byte) (Format, bool) {
	for f, n := range names {
		if bytes.EqualFold(name, []byte(n)) {
			return Format(f), true
		}
	}
	return Identity, false
}

// DefaultLevel is a level between 1, the fastest, and 9, the smallest.
const DefaultLevel = gzip.DefaultCompression

var (
	readers [formatCount]sync.Pool                                          // *reader
	writers [formatCount][gzip.BestCompression + 1 - DefaultLevel]sync.Pool // *writer, by level
)

type reader struct {
	io.ReadCloser
	format Format
}

// NewReader returns a reader of what src was compressed from. Closing it, once,
// gives it back.
func (f Format) NewReader(src io.Reader) (io.ReadCloser, error) {
	r, kept := readers[f].Get().(*reader)
	if !kept {
		r = &reader{format: f}
	}
	var err error
	switch inner := r.ReadCloser.(type) {
	case *gzip.Reader:
		err = inner.Reset(src)
	case zlib.Resetter:
		err = inner.Reset(src, nil)
	default:
		if f == Gzip {
			r.ReadCloser, err = gzip.NewReader(src)
		} else {
			r.ReadCloser, err = zlib.NewReader(src)
		}
		kept = err == nil
	}
	if err != nil {
		if kept {
			readers[f].Put(r)
		}
		return nil, err
	}
	return r, nil
}

// Close implements io.Closer.
func (r *reader) Close() error {
	err := r.ReadCloser.Close()
	readers[r.format].Put(r)
	return err
}

type writer struct {
	packer
	pool *sync.Pool
}

// A packer is what the writers of all formats are.
type packer interface {
	io.WriteCloser
	Reset(io.Writer)
}

// NewWriter returns a writer that compresses into dst at that level. Closing
// it, once, ends the stream and gives it back.
func (f Format) NewWriter(dst io.Writer, level int) io.WriteCloser {
	pool := &writers[f][level-DefaultLevel]
	if w, ok := pool.Get().(*writer); ok {
		w.Reset(dst)
		return w
	}
	var p packer
	var err error
	if f == Gzip {
		p, err = gzip.NewWriterLevel(dst, level)
	} else {
		p, err = zlib.NewWriterLevel(dst, level)
	}
	if err != nil {
		panic("BUG: " + err.Error()) // there is no such level
	}
	return &writer{p, pool}
}

// Close implements io.Closer.
func (w *writer) Close() error {
	err := w.packer.Close()
	w.Reset(io.Discard) // let go of what it wrote to
	w.pool.Put(w)
	return err
}

// free is how much may be decompressed to whatever the ratio: tensors of zeros
// are a thousand times smaller compressed and do no harm here.
const free = 16 << 20

// Limit returns how many bytes may come of packed compressed ones: up to limit
// and, beyond 16 MiB, up to ratio times as many.
func Limit(packed int, limit, ratio int64) int64 {
	return min(limit, max(free, ratio*int64(packed)))
}
