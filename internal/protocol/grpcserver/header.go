package grpcserver

import (
	"bytes"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"shoal/internal/protocol/h2"
)

// A client's header is a few hundred bytes. maxHeaderList leaves room for
// tokens but not for a flood; maxHeaderBlock and maxHeaderFrames bound what is
// collected before it is parsed.
const (
	maxHeaderList   = 64 << 10
	maxHeaderBlock  = 2 * maxHeaderList
	maxHeaderFrames = 1 << 10
)

// A headerReader turns header blocks into requests. It belongs to the goroutine
// that reads the connection.
type headerReader struct {
	decoder *hpack.Decoder
	fields  []hpack.HeaderField
	size    int
	regular bool // a field other than HTTP/2's pseudo-headers has come
	invalid bool
	tooBig  bool

	// The last block that did not change the decoder, and its request: the same
	// block means the same again.
	last    []byte
	request *request

	// A block in several frames.
	stream    uint32 // zero when there is none
	endStream bool
	block     []byte
	frames    int
}

func (h *headerReader) init() {
	h.decoder = hpack.NewDecoder(h2.DefaultTable, h.emit)
	h.decoder.SetMaxStringLength(maxHeaderList)
}

// emit takes a field from the decoder.
func (h *headerReader) emit(f hpack.HeaderField) {
	if h.size += int(f.Size()); h.size > maxHeaderList {
		h.tooBig = true
		h.fields = nil
		return
	}
	if h.invalid {
		return // only the decoder needs the rest
	}
	pseudo := strings.HasPrefix(f.Name, ":")
	switch {
	case !pseudo:
		h.regular = true
		h.invalid = h.invalid || !validName(f.Name)
	case h.regular || h.repeated(f.Name):
		h.invalid = true
	}
	h.invalid = h.invalid || !httpguts.ValidHeaderFieldValue(f.Value)
	h.fields = append(h.fields, f)
}

// repeated reports whether a pseudo-header is unknown or has come already. gRPC
// has its own answer to two authorities.
func (h *headerReader) repeated(name string) bool {
	switch name {
	case ":authority":
		return false
	case ":method", ":scheme", ":path":
	default:
		return true
	}
	for i := range h.fields {
		if h.fields[i].Name == name {
			return true
		}
	}
	return false
}

// hasPseudo reports whether there is a pseudo-header, which trailers may not
// have.
func (h *headerReader) hasPseudo() bool {
	return slices.ContainsFunc(h.fields, func(f hpack.HeaderField) bool { return strings.HasPrefix(f.Name, ":") })
}

func validName(s string) bool {
	for _, r := range s {
		if !httpguts.IsTokenRune(r) || ('A' <= r && r <= 'Z') {
			return false
		}
	}
	return s != ""
}

// decode reads a block into h.fields.
func (h *headerReader) decode(block []byte) error {
	h.request = nil
	h.fields = make([]hpack.HeaderField, 0, 12)
	h.size, h.regular, h.invalid, h.tooBig = 0, false, false, false
	if _, err := h.decoder.Write(block); err != nil {
		return connError{http2.ErrCodeCompression, err.Error()}
	}
	if err := h.decoder.Close(); err != nil {
		return connError{http2.ErrCodeCompression, err.Error()}
	}
	return nil
}

// parse returns the request of a block.
func (h *headerReader) parse(s *Server, block []byte) (*request, error) {
	if h.request != nil && bytes.Equal(block, h.last) {
		return h.request, nil
	}
	if err := h.decode(block); err != nil {
		return nil, err
	}
	var r *request
	switch {
	case h.tooBig:
		r = new(request)
		r.refuse(http.StatusRequestHeaderFieldsTooLarge, codes.ResourceExhausted, "grpc: received header list larger than max (%d vs. %d)", h.size, maxHeaderList)
	case h.invalid:
		r = &request{malformed: true}
	default:
		r = s.parseRequest(h.fields)
	}
	h.fields = nil
	if indexed(block) {
		h.last, h.request = append(h.last[:0], block...), r
	}
	return r, nil
}

// indexed reports whether a block only refers to the decoder's table. Such a
// block does not change the table, so it means the same until another comes.
func indexed(block []byte) bool {
	for _, b := range block {
		if b < 0x80 || b == 0xff { // a literal, or a number of several bytes
			return false
		}
	}
	return true
}
