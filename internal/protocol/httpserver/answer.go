package httpserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"shoal/internal/status"
)

// A Stream is the body of an answer that is written after Serve has returned.
// It is closed when it is written or no longer needed.
type Stream interface {
	io.WriterTo
	io.Closer
}

// An answer is a dialect's answer.
type answer struct {
	status      int    // 0 for 200
	phrase      string // empty for the usual one
	ownPhrase   bool   // phrase is the dialect's, even if it is empty
	close       bool   // the connection ends with it
	contentType string // empty for none
	headers     []byte // other headers, as they are sent
	body        []byte
	stream      Stream // in place of the body
	length      int    // of the stream; -1 for one that is sent in chunks

	head []byte // memory for the head
	own  []byte // memory for errors
}

// maxOwn is the most memory for errors that a connection keeps.
const maxOwn = 4 << 10

// size returns how many bytes the body has, -1 if that is not known.
func (a *answer) size() int {
	if a.stream != nil {
		return a.length
	}
	return len(a.body)
}

// reset empties the answer.
func (a *answer) reset() {
	if a.stream != nil {
		_ = a.stream.Close() // there is nobody to tell
	}
	if cap(a.own) > maxOwn {
		a.own = nil
	}
	*a = answer{headers: a.headers[:0], head: a.head, own: a.own}
}

// fail makes err the answer.
func (a *answer) fail(d Dialect, err error) {
	a.reset()
	body, head := d.AppendError(a.own[:0], err)
	a.own, a.body = body, body
	a.status, a.phrase, a.contentType = head.Status, head.Phrase, head.Type
	a.headers, a.close = append(a.headers, head.Headers...), head.Close
	if e, ok := errors.AsType[*Error](err); ok && e.Accept != "" {
		a.headers = appendHeader(a.headers, fasthttp.HeaderAcceptEncoding, e.Accept)
	}
}

// SetStatus sets the answer's status; the default is 200.
func (x *Exchange) SetStatus(code int) { x.answer.status = code }

// SetPhrase sets the answer's reason phrase, which may be empty.
func (x *Exchange) SetPhrase(phrase string) {
	x.answer.phrase, x.answer.ownPhrase = oneLine.Replace(phrase), true
}

// CloseAfter ends the connection after the answer.
func (x *Exchange) CloseAfter() { x.answer.close = true }

// RemoteAddr returns the client's address.
func (x *Exchange) RemoteAddr() net.Addr { return x.conn.RemoteAddr() }

// SetType sets the answer's Content-Type; by default there is none.
func (x *Exchange) SetType(contentType string) { x.answer.contentType = contentType }

// SetHeader adds another header to the answer. Line breaks in it become spaces.
func (x *Exchange) SetHeader(name, value string) {
	x.answer.headers = appendHeader(x.answer.headers, oneLine.Replace(name), oneLine.Replace(value))
}

// SetHeaders adds header lines that are complete, each with its line break.
func (x *Exchange) SetHeaders(lines []byte) { x.answer.headers = append(x.answer.headers, lines...) }

// SetHeaderInt adds another header, whose value is a number, to the answer.
func (x *Exchange) SetHeaderInt(name string, n int) {
	x.answer.headers = appendHeaderInt(x.answer.headers, name, n)
}

var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

// SetBody makes b the answer's body. The server then owns b.
func (x *Exchange) SetBody(b []byte) { x.answer.body = b }

// SetStream lets s write the answer's body of length bytes. With a length of -1
// each write is sent at once, as a chunk.
func (x *Exchange) SetStream(s Stream, length int) { x.answer.stream, x.answer.length = s, length }

// WakeOnHalfClose sends a value to wake, which has a buffer, when the client
// closes its sending direction. If the answer is a stream of events, it must
// then send something that the client ignores: only that shows whether the
// client is gone.
func (x *Exchange) WakeOnHalfClose(wake chan struct{}) { x.conn.half.stream(&wake) }

// writeAnswer writes the answer and resets it. The output is sent when the
// connection is next read, or now if it is not kept.
func (x *Exchange) writeAnswer(keep bool) (err error) {
	a := &x.answer
	defer func() {
		if p := recover(); p != nil {
			err = status.Panicked(p)
			x.conn.server.opt.Log.Error("write an answer", "path", string(x.Header.RequestURI()), "err", err)
		}
		a.reset()
	}()
	a.head = x.appendHead(a.head[:0], keep)
	if x.access != nil {
		x.access.Status = a.status
	}
	x.out.Write(a.head) // Flush returns the error again
	if !x.Header.IsHead() {
		n, err := a.writeBody(x.out)
		if x.access != nil {
			x.access.Bytes = n
		}
		if err != nil {
			return err
		}
	}
	if keep {
		return nil
	}
	return x.out.Flush()
}

func (x *Exchange) appendHead(b []byte, keep bool) []byte {
	a := &x.answer
	proto := "HTTP/1.1 "
	if x.IsHTTP10() {
		proto = "HTTP/1.0 "
	}
	if a.status == 0 {
		a.status = fasthttp.StatusOK
	}
	if a.phrase == "" && !a.ownPhrase {
		a.phrase = fasthttp.StatusMessage(a.status)
	}
	b = append(b, proto...)
	b = strconv.AppendInt(b, int64(a.status), 10)
	b = append(b, ' ')
	b = append(b, a.phrase...)
	b = append(b, "\r\n"...)
	if a.contentType != "" {
		b = appendHeader(b, fasthttp.HeaderContentType, a.contentType)
	}
	if n := a.size(); n >= 0 {
		b = appendHeaderInt(b, fasthttp.HeaderContentLength, n)
	} else {
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	b = append(b, a.headers...)
	switch {
	case !keep:
		b = append(b, "Connection: close\r\n"...)
	case !x.Header.IsHTTP11() || x.conn != nil && x.conn.server.opt.SayKeepAlive:
		b = append(b, "Connection: keep-alive\r\n"...)
	}
	return append(b, "\r\n"...)
}

func appendHeader(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}

func appendHeaderInt(b []byte, name string, n int) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, "\r\n"...)
}

// writeBody writes the body and returns its size.
func (a *answer) writeBody(w *bufio.Writer) (int64, error) {
	if a.stream == nil {
		n, err := w.Write(a.body)
		return int64(n), err
	}
	if a.length < 0 {
		n, err := a.stream.WriteTo(chunkWriter{w})
		if err != nil {
			return n, err
		}
		_, err = w.WriteString("0\r\n\r\n")
		return n, err
	}
	n, err := a.stream.WriteTo(w)
	if err == nil && n != int64(a.length) {
		err = fmt.Errorf("BUG: the answer has %d bytes, and %d were promised", n, a.length)
	}
	return n, err
}

// A chunkWriter sends each write at once as a chunk.
type chunkWriter struct{ w *bufio.Writer }

func (c chunkWriter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil // it would end the body
	}
	var room [16]byte
	c.w.Write(append(strconv.AppendInt(room[:0], int64(len(p)), 16), "\r\n"...)) // errors come again from Flush
	c.w.Write(p)
	c.w.WriteString("\r\n")
	return len(p), c.w.Flush()
}
