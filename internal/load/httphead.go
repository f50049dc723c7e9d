package load

import (
	"bytes"
	"fmt"
)

// maxHead bounds the head of an answer.
const maxHead = 16 << 10

// A head is the part of an HTTP answer's head that this package needs.
type head struct {
	status int
	length int64 // of the body
	close  bool  // the server closes the connection after this answer
}

var headEnd = []byte("\r\n\r\n")

// parseHead parses the head of an answer: b from its beginning up to and
// including the empty line. Answers with a body of unknown length (chunked, or
// up to the end of the connection) are errors: the servers measured here send a
// length.
func parseHead(b []byte) (head, error) {
	line, rest, _ := bytes.Cut(b, []byte("\r\n"))
	status, ok := statusOf(line)
	if !ok || bytes.IndexByte(line, '\n') >= 0 {
		return head{}, fmt.Errorf("%w: it begins with %.60q", errProtocol, line)
	}
	h := head{status: status, length: -1}
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		if len(line) == 0 {
			break
		}
		name, value, found := bytes.Cut(line, []byte(":"))
		if !found || bytes.IndexByte(line, '\n') >= 0 { // a bare LF at the end of a line is not accepted
			return head{}, fmt.Errorf("%w: header line %.60q", errProtocol, line)
		}
		if err := h.take(name, bytes.Trim(value, " \t")); err != nil {
			return head{}, err
		}
	}
	if bodyless := status/100 == 1 || status == 204 || status == 304; bodyless {
		h.length = 0
	}
	if h.length < 0 {
		return head{}, fmt.Errorf("%w: it has no Content-Length", errProtocol)
	}
	return h, nil
}

// take stores a header that matters. It compares the length of names first: it
// runs for every header of every answer.
func (h *head) take(name, value []byte) error {
	switch {
	case len(name) == len("content-length") && bytes.EqualFold(name, []byte("content-length")):
		n, ok := decimal(value)
		if !ok || h.length >= 0 && h.length != n {
			return fmt.Errorf("%w: Content-Length %.60q", errProtocol, value)
		}
		h.length = n
	case len(name) == len("transfer-encoding") && bytes.EqualFold(name, []byte("transfer-encoding")):
		return fmt.Errorf("%w: Transfer-Encoding %.60q is not read", errProtocol, value)
	case len(name) == len("connection") && bytes.EqualFold(name, []byte("connection")):
		h.close = bytes.EqualFold(value, []byte("close"))
	}
	return nil
}

// statusOf returns the code of a status line of HTTP/1.1.
func statusOf(line []byte) (int, bool) {
	const version = "HTTP/1.1 "
	if len(line) < len(version)+3 || string(line[:len(version)]) != version {
		return 0, false
	}
	if len(line) > len(version)+3 && line[len(version)+3] != ' ' {
		return 0, false
	}
	code, ok := decimal(line[len(version) : len(version)+3])
	return int(code), ok && code >= 100
}

// decimal parses a number without sign of at most 15 digits, more than any
// length here and too few to overflow.
func decimal(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 15 {
		return 0, false
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}
