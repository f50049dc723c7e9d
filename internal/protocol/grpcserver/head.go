package grpcserver

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"shoal/internal/protocol/h2"
)

// A head is a header or a trailer of an answer.
type head struct {
	http     int    // HTTP's status; zero in a trailer that follows a header
	subtype  string // of the content type
	encoding string // compression of messages; empty for none
	status   *status.Status
	md       metadata.MD

	// The part of the status that the client accepts, set by fit.
	message, details string
}

// Limits of a header list in bytes, as HTTP/2 counts them. gRPC's C core, which
// Python and C++ clients use, accepts 16 KB but may refuse more than 8 KB; gRPC
// for Java accepts 8 KB.
const (
	usualHeaderList   = 8 << 10
	longestHeaderList = 64 << 10
)

// maxSubtype is the longest subtype of a content type that is sent back.
const maxSubtype = 32

// headerLimits returns how large a header list may be, and how large the text
// of a status may make it.
func (s *peerSettings) headerLimits() (most, usual int64) {
	if s.maxHeaderList < 0 {
		return math.MaxInt64, usualHeaderList
	}
	most = s.maxHeaderList
	// C core refuses some headers above four fifths of its limit.
	return most, min(most-most/5, max(usualHeaderList, most/2), longestHeaderList)
}

// fit leaves out what the client does not accept: first the details of the
// status, then the end of its message, at last the metadata. It returns false
// when even the rest is too large.
func (h *head) fit(s *peerSettings) bool {
	most, usual := s.headerLimits()
	size := h.fixedSize()
	if size > most {
		return false
	}
	if len(h.md) > 0 {
		n := metadataSize(h.md)
		if n > most-size {
			h.md, n = nil, 0
		}
		size += n
	}
	if h.status != nil && h.status.Code() != codes.OK {
		h.fitStatus(usual - size)
	}
	return true
}

// fitStatus sets the texts of the status, which may take room bytes.
func (h *head) fitStatus(room int64) {
	if text := h.status.Message(); text != "" {
		value, whole := fitMessage(text, room-fieldSize("grpc-message", 0))
		if value == "" {
			return
		}
		h.message = value
		if room -= fieldSize("grpc-message", len(value)); !whole {
			return
		}
	}
	p := h.status.Proto()
	if len(p.GetDetails()) == 0 {
		return
	}
	n := base64.RawStdEncoding.EncodedLen(proto.Size(p))
	if fieldSize("grpc-status-details-bin", n) > room {
		return
	}
	if b, err := proto.Marshal(p); err == nil {
		h.details = base64.RawStdEncoding.EncodeToString(b)
	}
}

// fitMessage returns a text encoded for grpc-message, cut to room bytes, and
// whether it is complete. A cut text says so; if there is no room for that
// either, it is empty.
func fitMessage(text string, room int64) (string, bool) {
	if room <= 0 {
		return "", false
	}
	value, whole := appendMessage(nil, text, int(room))
	if whole {
		return string(value), true
	}
	cut := "... (cut, " + strconv.Itoa(len(text)) + " bytes in all)"
	if room < int64(len(cut)) {
		return "", false
	}
	value, _ = appendMessage(value[:0], text, int(room)-len(cut))
	return string(append(value, cut...)), false
}

// fieldSize is a field's size as HTTP/2 counts it.
func fieldSize(name string, value int) int64 {
	return int64(hpack.HeaderField{Name: name}.Size()) + int64(value)
}

// fixedSize is the size without the metadata and the texts of the status.
func (h *head) fixedSize() int64 {
	var n int64
	if h.http != 0 {
		n += fieldSize(":status", 3) + fieldSize("content-type", len(contentType))
		if s := h.answeredSubtype(); s != "" {
			n += int64(len(s) + 1)
		}
	}
	if h.encoding != "" {
		n += fieldSize("grpc-encoding", len(h.encoding))
	}
	if h.status != nil {
		n += fieldSize("grpc-status", len(strconv.Itoa(int(h.status.Code()))))
	}
	return n
}

// answeredSubtype is the subtype of the answer: the client's own, unless it is
// so long that it would make answers large.
func (h *head) answeredSubtype() string {
	if len(h.subtype) > maxSubtype {
		return ""
	}
	return h.subtype
}

func metadataSize(md metadata.MD) int64 {
	var n int64
	for name, values := range md {
		if reservedHeader(name) {
			continue
		}
		for _, v := range values {
			size := len(v)
			if strings.HasSuffix(name, binarySuffix) {
				size = base64.RawStdEncoding.EncodedLen(size)
			}
			n += fieldSize(name, size)
		}
	}
	return n
}

// appendHead appends a head as a header block. The client must get the block,
// to keep its HPACK table in step with ours.
func (x *indexing) appendHead(b []byte, h *head) []byte {
	b = x.appendTableSize(b)
	if h.http != 0 {
		b = x.appendResponse(b, h)
	}
	if h.encoding != "" {
		b = appendField(b, "grpc-encoding", h.encoding)
	}
	if st := h.status; st != nil {
		if st.Code() == codes.OK {
			b = x.appendOK(b)
		} else {
			b = appendField(b, "grpc-status", strconv.Itoa(int(st.Code())))
		}
		if h.message != "" {
			b = appendField(b, "grpc-message", h.message)
		}
		if h.details != "" {
			b = appendField(b, "grpc-status-details-bin", h.details)
		}
	}
	for name, values := range h.md {
		if reservedHeader(name) {
			continue
		}
		for _, v := range values {
			if strings.HasSuffix(name, binarySuffix) {
				v = base64.RawStdEncoding.EncodeToString([]byte(v))
			}
			b = appendField(b, name, v)
		}
	}
	return b
}

// appendResponse appends what an answer begins with.
func (x *indexing) appendResponse(b []byte, h *head) []byte {
	if h.http == 200 {
		b = append(b, 0x80|indexStatus200)
	} else {
		b = appendString(appendInt(b, 0, 4, indexStatus), strconv.Itoa(h.http))
	}
	if s := h.answeredSubtype(); s != "" {
		return appendString(appendInt(b, 0, 4, indexContentType), contentType+"+"+s)
	}
	return x.appendContentType(b)
}

// putHeadLocked queues a header or trailer with as much as the client accepts.
// When it accepts too little, the stream is reset and false returned.
func (c *conn) putHeadLocked(h *head, stream uint32, endStream bool) bool {
	if !h.fit(&c.settings) {
		c.out.settle(h2.AppendNumber(c.out.buf, http2.FrameRSTStream, stream, uint32(http2.ErrCodeInternal)))
		return false
	}
	c.block = c.indexing.appendHead(c.block[:0], h)
	kind, flags := http2.FrameHeaders, http2.Flags(0)
	if endStream {
		flags = http2.FlagHeadersEndStream
	}
	out := c.out.buf
	for block := c.block; ; kind, flags = http2.FrameContinuation, 0 {
		part := block[:min(len(block), c.settings.maxFrame)]
		if block = block[len(part):]; len(block) == 0 {
			flags |= http2.FlagHeadersEndHeaders
		}
		out = append(h2.AppendHeader(out, len(part), kind, flags, stream), part...)
		if len(block) == 0 {
			break
		}
	}
	c.out.settle(out)
	c.answered = true
	return true
}
