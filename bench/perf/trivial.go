package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
)

// A trivial server speaks just enough of the v2 protocol to be measured, and does
// nothing: what is measured against it is the client.
type trivial struct {
	listener net.Listener
	wg       sync.WaitGroup
}

// trivialModel is the name of its one model.
const trivialModel = "trivial"

// The answers to questions; all others are taken for infer requests.
var trivialAnswers = map[string]string{
	"GET /v2":                        `{"name":"trivial","version":"1","extensions":[]}`,
	"GET /v2/models/" + trivialModel: `{"name":"trivial","versions":["1"],"platform":"none","inputs":[{"name":"IN","datatype":"FP32","shape":[16]}],"outputs":[{"name":"OUT","datatype":"FP32","shape":[1]}]}`,
	"GET /v2/models/" + trivialModel + "/config": `{"name":"trivial","max_batch_size":0}`,
}

const trivialInfer = `{"model_name":"trivial","model_version":"1","outputs":[{"name":"OUT","datatype":"FP32","shape":[1],"data":[1]}]}`

// startTrivial listens on loopback until Close.
func startTrivial() (*trivial, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &trivial{listener: l}
	t.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serveTrivial(c) // ends with the client
		}
	})
	return t, nil
}

// Address returns where it listens.
func (t *trivial) Address() string { return t.listener.Addr().String() }

// Close ends it; connections end with their clients.
func (t *trivial) Close() {
	_ = t.listener.Close() // nothing to lose
	t.wg.Wait()
}

func serveTrivial(c net.Conn) {
	defer func() { _ = c.Close() }()
	r := bufio.NewReaderSize(c, 32<<10)
	infer := response(trivialInfer)
	for {
		line, length, err := readRequest(r)
		if err != nil {
			return
		}
		if _, err := r.Discard(length); err != nil {
			return
		}
		answer := infer
		if method, rest, _ := strings.Cut(line, " "); method == "GET" {
			path, _, _ := strings.Cut(rest, " ")
			answer = response(trivialAnswers["GET "+path])
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

func response(body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// readRequest reads the head of a request and returns its first line and how long
// its body is.
func readRequest(r *bufio.Reader) (first string, length int, err error) {
	for n := 0; ; n++ {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return "", 0, err
		}
		switch text := strings.TrimRight(string(line), "\r\n"); {
		case text == "":
			if n == 0 {
				return "", 0, errors.New("no request")
			}
			return first, length, nil
		case n == 0:
			first = text
		default:
			if name, value, _ := strings.Cut(text, ":"); strings.EqualFold(name, "content-length") {
				if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil || length < 0 {
					return "", 0, io.ErrUnexpectedEOF
				}
			}
		}
	}
}

// serveForever is the process that the client is measured against, which is not
// this one, so that its work does not count.
func serveForever(ctx context.Context) error {
	t, err := startTrivial()
	if err != nil {
		return err
	}
	defer t.Close()
	fmt.Println(t.Address())
	<-ctx.Done()
	return nil
}
