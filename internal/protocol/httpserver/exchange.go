package httpserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"shoal/internal/accesslog"
	"shoal/internal/reject"
	"shoal/internal/status"
)

// An Exchange is a request and its answer. A connection uses one for all its
// requests, so a dialect must keep neither it nor its data after Serve has
// returned; a Body belongs to the dialect until it releases it.
type Exchange struct {
	// Header has the request's line and headers.
	Header fasthttp.RequestHeader

	conn *conn
	in   *bufio.Reader
	out  *bufio.Writer
	body bodyReader
	uri  fasthttp.URI

	answer answer
	access *accesslog.Entry // nil when there is no access log
}

// newExchange returns an exchange without a connection.
func newExchange(headerSize int) *Exchange {
	x := &Exchange{in: bufio.NewReaderSize(nil, headerSize), out: bufio.NewWriterSize(nil, 4<<10)}
	x.body.in, x.body.header = x.in, &x.Header
	return x
}

// bind attaches the exchange to a connection, or detaches it with nil.
func (x *Exchange) bind(c *conn) {
	x.conn = c
	x.in.Reset(c)
	x.out.Reset(c)
}

// Context ends when the client hangs up. Inference runs under it.
func (x *Exchange) Context() context.Context { return x.conn.ctx }

// IsHTTP10 reports whether the client speaks HTTP/1.0, which has no chunks.
func (x *Exchange) IsHTTP10() bool { return string(x.Header.Protocol()) == "HTTP/1.0" }

// next answers one request and reports whether another may follow.
func (x *Exchange) next() bool {
	c := x.conn
	if err := x.Header.Read(x.in); err != nil && !x.readHostless(err) {
		return x.unreadable(err)
	}
	x.beginAccess()
	c.beginBody()
	x.body.begin()
	c.unread = !x.body.done
	err := x.serve()
	if err != nil {
		x.fail(err)
	}
	x.claim()
	if c.unread {
		c.unread = !x.drain()
	}
	keep := !c.unread && !c.server.closing.Load() && !x.Header.ConnectionClose() && !x.twoLengths() && !x.answer.close
	c.phase = phaseIdle
	err = x.writeAnswer(keep)
	x.endAccess()
	return err == nil && keep
}

// serve checks what applies to all dialects and lets the dialect answer.
func (x *Exchange) serve() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Panicked(p)
		}
	}()
	limit := x.conn.server.opt.MaxBodySize
	switch n := int64(x.Header.ContentLength()); {
	case n > math.MaxInt32:
		x.body.refuse()
		return ErrHeaderInt(fasthttp.HeaderContentLength, strconv.FormatInt(n, 10))
	case n > limit: // not read: it may never be complete
		if n > maxDrain || !x.conn.server.opt.KeepTooLarge || len(x.Header.PeekCanonical(expect)) > 0 {
			x.body.refuse()
		}
		return ErrBodyTooLarge(n, limit)
	case x.uri.Parse(x.Header.Host(), x.Header.RequestURI()) != nil:
		x.body.refuse()
		return errMalformed
	case !x.Header.IsHTTP11() && !x.IsHTTP10():
		return errVersion
	}
	if string(x.Header.PeekCanonical(expect)) == "100-continue" {
		x.out.WriteString(interim) // Flush returns the error again
		if err := x.out.Flush(); err != nil {
			x.body.refuse()
			return errBodyCut // nobody reads it
		}
	}
	return x.conn.server.dialect.Serve(x)
}

var expect = []byte("Expect")

// readHostless reads a head that lacks nothing but the header Host, where that is
// allowed. fasthttp wants one from HTTP/1.1 on and has left the head unread.
func (x *Exchange) readHostless(err error) bool {
	if !x.conn.server.opt.NoHost || !strings.Contains(err.Error(), "missing required host header") {
		return false
	}
	head, _ := x.in.Peek(x.in.Buffered())
	end := bytes.Index(head, []byte("\r\n\r\n"))
	if end < 0 {
		return false
	}
	older := bytes.Replace(head[:end+4], []byte(" HTTP/1.1\r\n"), []byte(" HTTP/1.0\r\n"), 1)
	_, _ = x.in.Discard(end + 4) // it is buffered
	if x.Header.Read(bufio.NewReaderSize(bytes.NewReader(older), len(older))) != nil {
		return false
	}
	x.Header.SetProtocol("HTTP/1.1")
	if v, ok := rawValue(x.Header.RawHeaders(), "connection"); !ok || !bytes.EqualFold(v, []byte("close")) {
		x.Header.ResetConnectionClose()
	}
	return true
}

// claim counts the memory of the answer, which its client holds until it has
// read it.
func (x *Exchange) claim() {
	c := x.conn
	c.used.Store(true)
	if x.answer.stream == nil {
		if err := c.claim.Acquire(int64(len(x.answer.body))); err != nil {
			x.fail(err)
		}
	}
	c.holds.Store(int64(max(x.answer.size(), 0)))
}

// twoLengths reports whether a chunked request also has a Content-Length, which
// is then ignored. A proxy in front may have used it, and would take a part of
// this request for the next one: there must not be one.
func (x *Exchange) twoLengths() bool {
	if x.Header.ContentLength() != -1 {
		return false
	}
	_, both := rawValue(x.Header.RawHeaders(), "content-length")
	return both
}

// fail answers with an error. The log gets the parts that the client does not
// see.
func (x *Exchange) fail(err error) {
	s := x.conn.server
	if HasCause(err) {
		s.opt.Log.Error("request failed", "method", string(x.Header.Method()), "path", string(x.Header.RequestURI()), "err", err)
	}
	x.rejected(x.Header.RequestURI(), reject.ReasonOf(err), publicText(err))
	x.answer.fail(s.dialect, err)
}

// rejected reports a request that did not reach a model.
func (x *Exchange) rejected(target []byte, reason reject.Reason, text string) {
	if reason == reject.None {
		return
	}
	s, client := x.conn.server, x.conn.RemoteAddr()
	model, version := s.dialect.Model(target)
	s.opt.Rejects.Request(reject.Request{
		Protocol: reject.HTTP, Client: client, Model: model, Version: version, Reason: reason, Text: text,
	})
	if reason == reject.Timeout {
		s.opt.Rejects.Closed(reject.HTTP, reject.ReadTimeout, client, text)
	}
}

// unreadable ends a connection whose next request cannot be parsed. Input that
// is not HTTP gets no answer, nor does silence.
func (x *Exchange) unreadable(err error) bool {
	head, _ := x.in.Peek(x.in.Buffered())
	if len(head) == 0 || err == io.EOF {
		return false
	}
	line, headers, _ := bytes.Cut(head, []byte("\r\n"))
	fields := bytes.SplitN(line, []byte(" "), 3)
	x.Header.Reset()
	if len(fields) == 3 {
		x.Header.SetRequestURIBytes(fields[1])
	}
	answer := headError(err, fields, headers)
	if answer == nil && x.conn.server.opt.AnswerAll {
		answer = errMalformed
	}
	if answer == nil {
		x.rejected(x.Header.RequestURI(), reject.Malformed, "")
		return false
	}
	x.conn.unread = true
	x.beginAccess()
	x.fail(answer)
	x.writeAnswer(false) // the connection is closed in any case
	x.endAccess()
	return false
}

// headError returns the error of a request that begins with this line and
// headers and could not be parsed because of err; nil if it is not HTTP.
func headError(err error, line [][]byte, headers []byte) error {
	var ne net.Error
	var small *fasthttp.ErrSmallBuffer
	switch {
	case errors.As(err, &small):
		return errHeadSize
	case errors.As(err, &ne) && ne.Timeout():
		return errHeadSlow
	case len(line) != 3 || !bytes.HasPrefix(line[2], []byte("HTTP/")) || bytes.ContainsRune(line[2], ' '):
		return nil
	}
	if v, ok := rawValue(headers, "content-length"); ok {
		if n, err := strconv.ParseInt(string(v), 10, 32); err != nil || n < 0 {
			return ErrHeaderInt(fasthttp.HeaderContentLength, string(v))
		}
	}
	return errMalformed
}

// rawValue returns the value of a header in the raw text of all headers.
func rawValue(raw []byte, name string) ([]byte, bool) {
	for line := range bytes.Lines(raw) {
		key, value, ok := bytes.Cut(line, []byte(":"))
		if ok && bytes.EqualFold(key, []byte(name)) {
			return bytes.TrimSpace(value), true
		}
	}
	return nil, false
}
