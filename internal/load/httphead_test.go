package load

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

func TestParseHead(t *testing.T) {
	tests := []struct {
		name string
		head string
		want head
		bad  bool
	}{
		{name: "an ordinary answer", head: "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n", want: head{status: 200, length: 12}},
		{name: "names in any case and spaces around values", head: "HTTP/1.1 400 Bad Request\r\ncOnTeNt-LeNgTh:\t7 \r\n\r\n", want: head{status: 400, length: 7}},
		{name: "no reason phrase", head: "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", want: head{status: 200}},
		{name: "the server closes", head: "HTTP/1.1 503 x\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n", want: head{status: 503, close: true}},
		{name: "no content has no length", head: "HTTP/1.1 204 No Content\r\n\r\n", want: head{status: 204}},
		{name: "an interim answer has no length", head: "HTTP/1.1 100 Continue\r\n\r\n", want: head{status: 100}},
		{name: "the same length twice", head: "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", want: head{status: 200, length: 3}},
		{name: "two lengths", head: "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", bad: true},
		{name: "no length", head: "HTTP/1.1 200 OK\r\n\r\n", bad: true},
		{name: "chunked", head: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", bad: true},
		{name: "a negative length", head: "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", bad: true},
		{name: "a length beyond 64 bits", head: "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", bad: true},
		{name: "another protocol", head: "SSH-2.0-OpenSSH_9.2\r\n\r\n", bad: true},
		{name: "an older HTTP", head: "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", bad: true},
		{name: "a status of four digits", head: "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", bad: true},
		{name: "a header without a colon", head: "HTTP/1.1 200 OK\r\nContent-Length\r\n\r\n", bad: true},
		{name: "a line that ends without CR", head: "HTTP/1.1 200 OK\nX: y\r\nContent-Length: 1\r\n\r\n", bad: true},
		{name: "nothing", head: "", bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseHead([]byte(tt.head))
			if tt.bad {
				if !errors.Is(err, errProtocol) {
					t.Errorf("got %+v, %v, want a protocol error", got, err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

func TestReadAnswer(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
	tests := []struct {
		name, answer, body string
		want               error
	}{
		{"a whole answer", ok + "hello", "hello", nil},
		{"an interim answer comes before it", "HTTP/1.1 100 Continue\r\n\r\n" + ok + "hello", "hello", nil},
		{"it ends in the head", "HTTP/1.1 200 OK\r\nContent-Le", "", io.EOF},
		{"it ends in the body", ok + "hel", "hel", io.ErrUnexpectedEOF},
		{"a head without end", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHead), "", errProtocol},
	}
	readers := map[string]func(io.Reader) io.Reader{
		"at once":      func(r io.Reader) io.Reader { return r },
		"byte by byte": iotest.OneByteReader,
	}
	for _, tt := range tests {
		for how, reader := range readers {
			t.Run(tt.name+", "+how, func(t *testing.T) {
				var body []byte
				_, _, err := readAnswer(reader(strings.NewReader(tt.answer)), make([]byte, readBuffer), 0, &body)
				if !errors.Is(err, tt.want) || string(body) != tt.body {
					t.Errorf("got %q, %v, want %q, %v", body, err, tt.body, tt.want)
				}
			})
		}
	}
}

func TestReadAnswerRefusesMoreThanTheBody(t *testing.T) {
	_, _, err := readAnswer(strings.NewReader("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab"), make([]byte, readBuffer), 0, nil)
	if !errors.Is(err, errProtocol) {
		t.Errorf("got %v, want a protocol error", err)
	}
}

// What this reader accepts, net/http understands in the same way.
func FuzzParseHead(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = append(b, headEnd...)
		b = b[:bytes.Index(b, headEnd)+len(headEnd)] // parseHead is given one whole head
		got, err := parseHead(b)
		if err != nil {
			return
		}
		want, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(b)), nil)
		if err != nil {
			return // net/http knows more rules than a load generator needs
		}
		if got.status != want.StatusCode {
			t.Errorf("status: got %d, want %d", got.status, want.StatusCode)
		}
		if got.length != max(want.ContentLength, 0) {
			t.Errorf("length: got %d, want %d", got.length, want.ContentLength)
		}
	})
}
