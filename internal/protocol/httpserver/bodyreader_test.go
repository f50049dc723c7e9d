package httpserver

import (
	"bufio"
	"bytes"
	"io"
	"net/http/httputil"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

// readChunks reads a chunked body from text, and returns what follows it.
func readChunks(text []byte) (body, rest []byte, err error) {
	var h fasthttp.RequestHeader
	h.SetContentLength(-1)
	in := bufio.NewReaderSize(bytes.NewReader(text), 64)
	r := bodyReader{in: in, header: &h}
	r.begin()
	if body, err = io.ReadAll(&r); err != nil {
		return nil, nil, err
	}
	rest, err = io.ReadAll(in)
	return body, rest, err
}

func TestChunks(t *testing.T) {
	for _, c := range []struct {
		name, text, want string // want is "" for a fault
	}{
		{"two chunks", "3\r\nabc\r\n1\r\nd\r\n0\r\n\r\nNEXT", "abcd|NEXT"},
		{"extensions", "3;a=b\r\nabc\r\n0;c\r\n\r\n", "abc|"},
		{"blanks behind the size", "3 \t\r\nabc\r\n0\r\n\r\n", "abc|"},
		{"a trailer", "3\r\nabc\r\n0\r\nX-A: b\r\n\r\nNEXT", "abc|NEXT"},
		{"a size in capitals", "A\r\n0123456789\r\n0\r\n\r\n", "0123456789|"},
		{"blanks before an extension", "3 ;a\r\nabc\r\n0\r\n\r\n", ""},
		{"a sign", "+3\r\nabc\r\n0\r\n\r\n", ""},
		{"a prefix", "0x3\r\nabc\r\n0\r\n\r\n", ""},
		{"no size", "\r\nabc\r\n0\r\n\r\n", ""},
		{"a line feed alone", "3\nabc\r\n0\r\n\r\n", ""},
		{"a return within the line", "3;\r;\r\nabc\r\n0\r\n\r\n", ""},
		{"a chunk that is longer", "3\r\nabcd\r\n0\r\n\r\n", ""},
		{"a size beyond 60 bits", "1000000000000000\r\nabc", ""},
		{"an extension without end", "3;" + strings.Repeat("x", 100) + "\r\nabc\r\n0\r\n\r\n", ""},
		{"no last chunk", "3\r\nabc\r\n", ""},
		{"the end within a chunk", "3\r\nab", ""},
	} {
		body, rest, err := readChunks([]byte(c.text))
		got := string(body) + "|" + string(rest)
		if (err != nil) != (c.want == "") || err == nil && got != c.want {
			t.Errorf("%s: got %q and %v, want %q", c.name, got, err, c.want)
		}
	}
}

// FuzzChunks: what is accepted has the meaning that the standard library gives
// it, since a proxy in front may be written with that.
func FuzzChunks(f *testing.F) {
	for _, s := range []string{"3\r\nabc\r\n0\r\n\r\n", "3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\nGET /", "0\r\n\r\n", "ffffffff\r\n", "1 \r\nx\r\n0\r\n\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		body, _, err := readChunks(text)
		if err != nil {
			return
		}
		want, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(text)))
		if err != nil || !bytes.Equal(body, want) {
			t.Errorf("%q: got %q, and the standard library %q (%v)", text, body, want, err)
		}
	})
}
