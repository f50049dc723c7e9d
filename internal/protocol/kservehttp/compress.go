package kservehttp

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"

	"shoal/internal/reject"
	"shoal/internal/status"
)

// An encoding is how a body is packed.
type encoding uint8

const (
	unpacked encoding = iota
	gzipped
	deflated // in zlib's format, as the name means in HTTP
)

var (
	acceptEncoding     = []byte("Accept-Encoding")
	contentEncodingKey = []byte("Content-Encoding")
)

// String returns the encoding's name in HTTP.
func (e encoding) String() string {
	return [...]string{"identity", "gzip", "deflate"}[e]
}

// parseEncoding returns the encoding with that name, in any case.
func parseEncoding(name []byte) (encoding, bool) {
	switch {
	case strings.EqualFold(alias(name), "gzip"):
		return gzipped, true
	case strings.EqualFold(alias(name), "deflate"):
		return deflated, true
	case strings.EqualFold(alias(name), "identity"):
		return unpacked, true
	}
	return unpacked, false
}

// contentEncoding reads a Content-Encoding header. It reports false for an
// encoding that is not supported.
func contentEncoding(value []byte) (encoding, bool) {
	if len(value) == 0 {
		return unpacked, true
	}
	return parseEncoding(value)
}

// acceptedEncoding picks from an Accept-Encoding header the encoding with the
// greatest weight, the first among equals, of those that are supported.
func acceptedEncoding(value []byte) encoding {
	best, most := unpacked, 0.0
	for len(value) > 0 {
		var item []byte
		item, value, _ = bytes.Cut(value, []byte(","))
		name, params, _ := bytes.Cut(item, []byte(";"))
		enc, known := parseEncoding(bytes.TrimSpace(name))
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
	gzipped:  {New: func() any { return gzip.NewWriter(nil) }},
	deflated: {New: func() any { return zlib.NewWriter(nil) }},
}

var unpackers = [...]*sync.Pool{
	gzipped:  {New: func() any { return new(gzipReader) }},
	deflated: {New: func() any { return new(zlibReader) }},
}

// writer returns a writer that packs what it gets into w. It is taken back by
// putWriter.
func (e encoding) writer(w io.Writer) packer {
	p := packers[e].Get().(packer)
	p.Reset(w)
	return p
}

func (e encoding) putWriter(p packer) { packers[e].Put(p) }

// A bodyWriter is a body that is written to.
type bodyWriter body

func (w *bodyWriter) Write(p []byte) (int, error) {
	if need := len(w.b) + len(p); need > cap(w.b) {
		if err := (*body)(w).grow(max(need, 2*cap(w.b))); err != nil {
			return 0, err
		}
	}
	w.b = append(w.b, p...)
	return len(p), nil
}

// freeUnpacked is how much a body may be unpacked to whatever the ratio: tensors
// of zeros are packed a thousand times smaller and do no harm here.
const freeUnpacked = 16 << 20

// maxUnpacked returns what a body of so many bytes may be unpacked to.
func (h *handler) maxUnpacked(packed int) int64 {
	return min(h.maxInput, max(freeUnpacked, h.maxRatio*int64(packed)))
}

// decompress replaces the body by what it was packed from, which may have up
// to limit bytes.
func (a *inferAnswer) decompress(enc encoding, limit int64) error {
	if len(a.body.b) == 0 {
		return status.Rejectf(reject.Malformed, status.InvalidArgument, "nothing to be decompressed")
	}
	u := unpackers[enc].Get().(unpacker)
	defer unpackers[enc].Put(u)
	out := newBody(a.memory)
	err := u.reset(bytes.NewReader(a.body.b))
	if err == nil {
		err = out.readAll(u, limit)
	}
	if err != nil {
		out.release()
		var se *status.Error
		if errors.As(err, &se) {
			return err
		}
		return status.Rejectf(reject.Malformed, status.InvalidArgument, "the request's body is not valid %s: %v", enc, err)
	}
	a.body.release()
	a.body = out
	return nil
}

// readAll reads r to its end, or fails after limit bytes.
func (p *body) readAll(r io.Reader, limit int64) error {
	for {
		if len(p.b) == cap(p.b) {
			if err := p.grow(max(firstRead, growth*len(p.b))); err != nil {
				return err
			}
		}
		n, err := r.Read(p.b[len(p.b):cap(p.b)])
		p.b = p.b[:len(p.b)+n]
		switch {
		case int64(len(p.b)) > limit:
			return errDecompressed(limit)
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}
