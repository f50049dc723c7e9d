package httpserver

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"

	"shoal/internal/inflight"
	"shoal/internal/reject"
	"shoal/internal/status"
)

// An Encoding is how a body is compressed.
type Encoding uint8

// The encodings.
const (
	Identity Encoding = iota
	Gzip
	Deflate // in zlib's format, as the name means in HTTP
)

var encodingNames = [...]string{"identity", "gzip", "deflate"}

// String returns the encoding's name in HTTP.
func (e Encoding) String() string { return encodingNames[e] }

// ParseEncoding returns the encoding with that name, in any case. It reports
// false for one that is not supported.
func ParseEncoding(name []byte) (Encoding, bool) {
	for e, n := range encodingNames {
		if bytes.EqualFold(name, []byte(n)) {
			return Encoding(e), true
		}
	}
	return Identity, false
}

// ContentEncoding returns how the request's body is compressed.
func (x *Exchange) ContentEncoding() (Encoding, error) {
	value := x.Header.PeekCanonical(contentEncoding)
	if len(value) == 0 {
		return Identity, nil
	}
	if e, ok := ParseEncoding(value); ok {
		return e, nil
	}
	return Identity, ErrEncoding
}

// AcceptedEncoding returns how the client wants its answer compressed.
func (x *Exchange) AcceptedEncoding() Encoding {
	return acceptedEncoding(x.Header.PeekCanonical(acceptEncoding))
}

var (
	acceptEncoding  = []byte("Accept-Encoding")
	contentEncoding = []byte("Content-Encoding")
)

// acceptedEncoding picks from an Accept-Encoding header the encoding with the
// greatest weight, the first among equals, of those that are supported.
func acceptedEncoding(value []byte) Encoding {
	best, most := Identity, 0.0
	for len(value) > 0 {
		var item []byte
		item, value, _ = bytes.Cut(value, []byte(","))
		name, params, _ := bytes.Cut(item, []byte(";"))
		enc, known := ParseEncoding(bytes.TrimSpace(name))
		if !known {
			continue
		}
		if w := weight(params); w > most {
			best, most = enc, w
		}
	}
	return best
}

// weight reads the q of an accepted encoding: 1 when there is none, 0 when it
// makes no sense.
func weight(params []byte) float64 {
	q, ok := bytes.CutPrefix(bytes.TrimSpace(params), []byte("q="))
	if !ok {
		return 1
	}
	w, err := strconv.ParseFloat(string(q), 64)
	if err != nil || w < 0 || w > 1 {
		return 0
	}
	return w
}

// A packer is a compressing writer that can be used again.
type packer interface {
	io.WriteCloser
	Reset(io.Writer)
}

// An unpacker is a decompressing reader that can be used again.
type unpacker interface {
	io.Reader
	reset(io.Reader) error
}

type (
	gzipReader struct{ gzip.Reader }
	zlibReader struct{ io.Reader }
)

func (r *gzipReader) reset(src io.Reader) error { return r.Reader.Reset(src) }

func (r *zlibReader) reset(src io.Reader) error {
	if r.Reader == nil {
		var err error
		r.Reader, err = zlib.NewReader(src)
		return err
	}
	return r.Reader.(zlib.Resetter).Reset(src, nil)
}

var packers = [...]*sync.Pool{
	Gzip:    {New: func() any { return gzip.NewWriter(nil) }},
	Deflate: {New: func() any { return zlib.NewWriter(nil) }},
}

var unpackers = [...]*sync.Pool{
	Gzip:    {New: func() any { return new(gzipReader) }},
	Deflate: {New: func() any { return new(zlibReader) }},
}

// Compress returns what from writes, compressed, in a body of its own.
func (e Encoding) Compress(from io.WriterTo, memory *inflight.Pool) (*Body, error) {
	out := NewBody(memory)
	w := packers[e].Get().(packer)
	defer packers[e].Put(w)
	w.Reset(out)
	_, err := from.WriteTo(w)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		out.Release()
		return nil, err
	}
	return out, nil
}

// Write implements io.Writer.
func (p *Body) Write(b []byte) (int, error) {
	if need := len(p.B) + len(b); need > cap(p.B) {
		if err := p.Grow(max(need, 2*cap(p.B))); err != nil {
			return 0, err
		}
	}
	p.B = append(p.B, b...)
	return len(b), nil
}

// freeUnpacked is how much a body may be decompressed to whatever the ratio:
// tensors of zeros are packed a thousand times smaller and do no harm here.
const freeUnpacked = 16 << 20

// Decompress returns what the request's body was compressed from, up to limit
// bytes of it, in place of the body, which it releases unless it fails.
func (x *Exchange) Decompress(packed *Body, enc Encoding, limit int64) (*Body, error) {
	if len(packed.B) == 0 {
		return nil, status.Rejectf(reject.Malformed, status.InvalidArgument, "nothing to be decompressed")
	}
	limit = min(limit, max(freeUnpacked, x.conn.server.opt.MaxRatio*int64(len(packed.B))))
	u := unpackers[enc].Get().(unpacker)
	defer unpackers[enc].Put(u)
	out := NewBody(packed.memory)
	err := u.reset(bytes.NewReader(packed.B))
	if err == nil {
		err = out.readAll(u, limit)
	}
	if err == nil {
		packed.Release()
		return out, nil
	}
	out.Release()
	if _, ok := errors.AsType[*status.Error](err); !ok {
		err = status.Rejectf(reject.Malformed, status.InvalidArgument, "the request's body is not valid %s: %v", enc, err)
	}
	return nil, err
}

// readAll reads r to its end, or fails after limit bytes.
func (p *Body) readAll(r io.Reader, limit int64) error {
	for {
		if len(p.B) == cap(p.B) {
			if err := p.Grow(max(firstRead, growth*len(p.B))); err != nil {
				return err
			}
		}
		err := p.fill(r)
		switch {
		case int64(len(p.B)) > limit:
			return status.Rejectf(reject.TooLarge, status.InvalidArgument,
				"Decompressed data size exceeds the maximum allowed value of %d bytes. Use --http-max-input-size to increase the limit.", limit)
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}
