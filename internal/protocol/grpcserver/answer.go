package grpcserver

import (
	"encoding/base64"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// indexing is what the client's table of fields holds of ours: the two that
// almost every answer has. All others are spelled out, so that the places of
// these are known.
type indexing struct {
	off         bool // the client's table is too small
	tell        bool // and it was not told yet that it is not used
	contentType byte // places; zero when not there
	ok          byte
}

// The places in HPACK's table that are used here.
const (
	indexStatus200   = 8
	indexStatus      = 8 // its name
	indexContentType = 31
	indexFirst       = 62 // the place of the latest
)

// appendContentType appends the usual content type.
func (x *indexing) appendContentType(b []byte) []byte {
	switch {
	case x.off:
		return appendString(appendInt(b, 0, 4, indexContentType), contentType)
	case x.contentType != 0:
		return append(b, 0x80|x.contentType)
	}
	x.contentType = indexFirst
	if x.ok != 0 {
		x.ok++
	}
	return appendString(append(b, 0x40|indexContentType), contentType)
}

// appendOK appends the status of a call that went well.
func (x *indexing) appendOK(b []byte) []byte {
	switch {
	case x.off:
		return appendString(appendString(append(b, 0), "grpc-status"), "0")
	case x.ok != 0:
		return append(b, 0x80|x.ok)
	}
	x.ok = indexFirst
	if x.contentType != 0 {
		x.contentType++
	}
	return appendString(appendString(append(b, 0x40), "grpc-status"), "0")
}

// appendInt appends a number of HPACK's whose first byte has bits of its own
// above those of the prefix.
func appendInt(b []byte, first byte, prefix, n int) []byte {
	limit := 1<<prefix - 1
	if n < limit {
		return append(b, first|byte(n))
	}
	b = append(b, first|byte(limit))
	for n -= limit; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

func appendString(b []byte, s string) []byte {
	return append(appendInt(b, 0, 7, len(s)), s...)
}

// A fields is a header that is being made.
type fields struct {
	b    []byte
	size int64 // as the client counts it
}

func (f *fields) add(name, value string) {
	f.b = appendString(appendString(append(f.b, 0), name), value)
	f.count(name, value)
}

func (f *fields) count(name, value string) {
	f.size += int64(hpack.HeaderField{Name: name, Value: value}.Size())
}

// beginLocked starts a header.
func (c *conn) beginLocked() fields {
	f := fields{b: c.block[:0]}
	if c.indexing.tell {
		c.indexing.tell = false
		f.b = append(f.b, 0x20) // a table of size 0
	}
	return f
}

// response adds what an answer begins with.
func (c *conn) responseLocked(f *fields, httpStatus int, subtype string) {
	code := strconv.Itoa(httpStatus)
	f.count(":status", code)
	if httpStatus == 200 {
		f.b = append(f.b, 0x80|indexStatus200)
	} else {
		f.b = appendString(appendInt(f.b, 0, 4, indexStatus), code)
	}
	f.count("content-type", contentType)
	if subtype == "" {
		f.b = c.indexing.appendContentType(f.b)
		return
	}
	f.size += int64(len(subtype) + 1)
	f.b = appendString(appendInt(f.b, 0, 4, indexContentType), contentType+"+"+subtype)
}

// status adds a status.
func (c *conn) statusLocked(f *fields, st *status.Status) {
	if st.Code() == codes.OK {
		f.count("grpc-status", "0")
		f.b = c.indexing.appendOK(f.b)
		return
	}
	f.add("grpc-status", strconv.Itoa(int(st.Code())))
	if text := st.Message(); text != "" {
		f.add("grpc-message", string(appendMessage(nil, text)))
	}
	if p := st.Proto(); len(p.GetDetails()) > 0 {
		if b, err := proto.Marshal(p); err == nil {
			f.add("grpc-status-details-bin", base64.RawStdEncoding.EncodeToString(b))
		}
	}
}

// metadata adds a handler's own fields.
func (f *fields) metadata(md metadata.MD) {
	for name, values := range md {
		if reservedHeader(name) {
			continue
		}
		for _, v := range values {
			if strings.HasSuffix(name, binarySuffix) {
				v = base64.RawStdEncoding.EncodeToString([]byte(v))
			}
			f.add(name, v)
		}
	}
}

// putHeaderLocked puts a header out, or resets the stream when the client said
// that it would not take so much.
func (c *conn) putHeaderLocked(f fields, stream uint32, endStream bool) {
	c.block = f.b
	if limit := c.settings.maxHeaderList; limit >= 0 && f.size > limit {
		c.out.settle(appendNumber(c.out.buf, http2.FrameRSTStream, stream, uint32(http2.ErrCodeInternal)))
		return
	}
	kind, flags := http2.FrameHeaders, http2.Flags(0)
	if endStream {
		flags = http2.FlagHeadersEndStream
	}
	out := c.out.buf
	for block := f.b; ; kind, flags = http2.FrameContinuation, 0 {
		part := block[:min(len(block), c.settings.maxFrame)]
		if block = block[len(part):]; len(block) == 0 {
			flags |= http2.FlagHeadersEndHeaders
		}
		out = append(appendFrameHeader(out, len(part), kind, flags, stream), part...)
		if len(block) == 0 {
			break
		}
	}
	c.out.settle(out)
	c.answered = true
}

// headerLocked puts out the header of an answer.
func (c *conn) headerLocked(s *call) {
	s.headerSent = true
	f := c.beginLocked()
	c.responseLocked(&f, 200, s.req.subtype)
	if s.compress != "" {
		f.add("grpc-encoding", s.compress)
	}
	f.metadata(s.header)
	c.putHeaderLocked(f, s.id, false)
}

// finishLocked puts out the end of a call and makes it none of the
// connection's.
func (c *conn) finishLocked(s *call, st *status.Status) {
	if !s.headerSent && len(s.header) > 0 {
		c.headerLocked(s)
	}
	f := c.beginLocked()
	if !s.headerSent {
		s.headerSent = true
		c.responseLocked(&f, 200, s.req.subtype)
	}
	c.statusLocked(&f, st)
	f.metadata(s.trailer)
	c.putHeaderLocked(f, s.id, true)
	if !s.remoteClosed {
		c.out.settle(appendNumber(c.out.buf, http2.FrameRSTStream, s.id, uint32(http2.ErrCodeNo)))
	}
	c.grantConnLocked(connWindow / 4)
	s.running = false
	c.removeLocked(s)
}

// refuseLocked answers a request that is none of gRPC's.
func (c *conn) refuseLocked(stream uint32, r *request, re *refusal, endStream bool) {
	f := c.beginLocked()
	c.responseLocked(&f, re.http, r.subtype)
	c.statusLocked(&f, re.status)
	c.putHeaderLocked(f, stream, true)
	if !endStream {
		c.out.settle(appendNumber(c.out.buf, http2.FrameRSTStream, stream, uint32(http2.ErrCodeNo)))
	}
}

// answer sends the one message of a call and ends it well, in one write if the
// client's windows allow.
func (c *conn) answer(s *call, data mem.BufferSlice, compressed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.sendLocked(s, data, compressed); err != nil {
		return
	}
	if !s.ended.Load() {
		c.finishLocked(s, statusOK)
	}
	c.flushLocked()
}

var statusOK = status.New(codes.OK, "")

// finish ends a call.
func (c *conn) finish(s *call, st *status.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.ended.Load() {
		return
	}
	c.finishLocked(s, st)
	c.flushLocked()
}

// send sends one of several messages.
func (c *conn) send(s *call, data mem.BufferSlice, compressed bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.sendLocked(s, data, compressed)
	c.flushLocked()
	return err
}
