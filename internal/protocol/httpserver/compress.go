package httpserver

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"math"
	"strconv"

	"shoal/internal/inflight"
	"shoal/internal/protocol/compression"
	"shoal/internal/reject"
	"shoal/internal/status"
)

// ContentEncoding returns how the request's body is compressed.
func (x *Exchange) ContentEncoding() (compression.Format, error) {
	value := x.Header.PeekCanonical(contentEncoding)
	if len(value) == 0 {
		return compression.Identity, nil
	}
	if e, ok := compression.Parse(value); ok {
		return e, nil
	}
	return compression.Identity, ErrEncoding
}

// AcceptedEncoding returns how the client wants its answer compressed.
func (x *Exchange) AcceptedEncoding() compression.Format {
	return acceptedEncoding(x.Header.PeekCanonical(acceptEncoding))
}

var (
	acceptEncoding  = []byte("Accept-Encoding")
	contentEncoding = []byte("Content-Encoding")
)

// acceptedEncoding picks from an Accept-Encoding header the encoding with the
// greatest weight, the first among equals, of those that are supported.
func acceptedEncoding(value []byte) compression.Format {
	best, most := compression.Identity, 0.0
	for len(value) > 0 {
		var item []byte
		item, value, _ = bytes.Cut(value, []byte(","))
		name, params, _ := bytes.Cut(item, []byte(";"))
		enc, known := compression.Parse(bytes.TrimSpace(name))
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

// Compress returns what from writes, compressed, in a body of its own.
func Compress(from io.WriterTo, by compression.Format, memory *inflight.Pool) (*Body, error) {
	out := NewBody(memory)
	w := by.NewWriter(out, compression.DefaultLevel)
	_, err := from.WriteTo(w)
	if err = cmp.Or(err, w.Close()); err != nil {
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

// Decompress returns what the request's body was compressed from, up to limit
// bytes of it, in place of the body, which it releases unless it fails.
func (x *Exchange) Decompress(packed *Body, by compression.Format, limit int64) (*Body, error) {
	if len(packed.B) == 0 {
		return nil, status.Rejectf(reject.Malformed, status.InvalidArgument, "nothing to be decompressed")
	}
	out := NewBody(packed.memory)
	r, err := by.NewReader(bytes.NewReader(packed.B))
	if err == nil {
		err = out.readAll(r, math.MaxInt, compression.Limit(len(packed.B), limit, x.conn.server.opt.MaxRatio), errUnpacked)
		_ = r.Close() // all that was wrong is known
	}
	if err == nil {
		packed.Release()
		return out, nil
	}
	out.Release()
	if _, ok := errors.AsType[*status.Error](err); !ok {
		err = status.Rejectf(reject.Malformed, status.InvalidArgument, "the request's body is not valid %s: %v", by, err)
	}
	return nil, err
}

func errUnpacked(_, limit int64) error {
	return status.Rejectf(reject.TooLarge, status.InvalidArgument,
		"Decompressed data size exceeds the maximum allowed value of %d bytes. Use --http-max-input-size to increase the limit.", limit)
}
