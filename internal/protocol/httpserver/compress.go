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

// ContentEncoding returns the compression of the request's body.
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

// AcceptedEncoding returns the compression that the client prefers for its
// answer.
func (x *Exchange) AcceptedEncoding() compression.Format {
	return acceptedEncoding(x.Header.PeekCanonical(acceptEncoding))
}

var (
	acceptEncoding  = []byte("Accept-Encoding")
	contentEncoding = []byte("Content-Encoding")
)

// acceptedEncoding chooses the supported encoding with the greatest weight in
// an Accept-Encoding header, the first among equals.
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
// is invalid.
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

// Compress returns the output of from, compressed, in a new body.
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

// Decompress replaces the request's body by its decompressed form of up to
// limit bytes. It releases the compressed body unless it fails.
func (x *Exchange) Decompress(packed *Body, by compression.Format, limit int64) (*Body, error) {
	if len(packed.B) == 0 {
		return nil, status.Rejectf(reject.Malformed, status.InvalidArgument, "nothing to be decompressed")
	}
	out := NewBody(packed.memory)
	r, err := by.NewReader(bytes.NewReader(packed.B))
	if err == nil {
		err = out.readAll(r, math.MaxInt, compression.Limit(len(packed.B), limit, x.conn.server.opt.MaxRatio), errUnpacked)
		_ = r.Close() // its errors are known already
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
