package attack

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"shoal/bench/internal/peer"
)

// jsonSize is the size of the JSON bodies that are made of millions of things.
const jsonSize = 4 << 20

// HTTP returns the attacks over HTTP.
func HTTP() []Class {
	return []Class{
		{Name: "http-announced", Conns: 800, Act: httpOpen("Content-Length: 2000000000\r\n\r\n{\"inputs\":[" + strings.Repeat(" ", 100)), About: "a body of 2 GB announced, 100 bytes sent"},
		{Name: "http-chunk", Conns: 800, Act: httpOpen("Transfer-Encoding: chunked\r\n\r\n7fffff00\r\n{\"inputs\":[" + strings.Repeat(" ", 100)), About: "a chunk of 2 GB announced, 100 bytes sent"},
		{Name: "http-trickle", Conns: 200, Act: httpTrickle, About: "a body of 16 MB at 10 KB a second"},
		{Name: "http-chunks", Conns: 50, Rate: 16 << 20, Act: httpChunks, About: "a body in chunks of one byte, as fast as they are taken"},
		{Name: "http-slow-headers", Conns: 200, Act: httpSlowHeaders, About: "headers byte by byte"},
		{Name: "http-idle", Conns: 500, Act: silent(httpAddress), About: "connections without a request"},
		{Name: "http-unread", Conns: 20, Act: httpUnread, About: "eight requests with answers of 4 MB each on a socket that is not read"},
		{Name: "http-gzip", Conns: 20, Act: httpBody(bomb, "Content-Encoding: gzip\r\n"), About: "bodies that unpack to a thousand times their size"},
		{Name: "json-inputs", Conns: 8, Act: httpJSON(`{"inputs":[`, `{"name":"a","shape":[1],"datatype":"FP32","data":[1]}`, `]}`), About: "bodies of 4 MB with 77,000 inputs"},
		{Name: "json-nested", Conns: 8, Act: httpJSON(`{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"FP32","data":[[`, "[", ``), About: "bodies of 4 MB with data nested four million deep"},
		{Name: "json-numbers", Conns: 8, Act: httpJSON(`{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"FP32","data":[`, "1", `]}]}`), About: "bodies of 4 MB with two million numbers"},
		{Name: "json-strings", Conns: 8, Act: httpJSON(`{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"BYTES","data":[`, `""`, `]}]}`), About: "bodies of 4 MB with 1.4 million empty strings"},
		{Name: "json-keys", Conns: 8, Act: httpJSON(`{"parameters":{`, `"a":1`, `}}`), About: "bodies of 4 MB with 700,000 parameters"},
		{Name: "http-malformed", Conns: 8, Act: httpMalformed, About: "requests with random bytes changed"},
		{Name: "http-restricted", Conns: 50, Act: httpRestricted, About: "requests without the header that they need, with bodies of 64 MB", Flags: []string{"--http-restricted-api=statistics:key=value"}},
	}
}

const httpHead = "POST /v2/models/%s/infer HTTP/1.1\r\nHost: attack\r\n"

// httpOpen begins a request whose rest does not come.
func httpOpen(head string) func(context.Context, Target, *Tally) error {
	return func(ctx context.Context, t Target, tally *Tally) error {
		w, err := dial(ctx, t.HTTP, tally)
		if err != nil {
			return err
		}
		defer w.Close()
		if _, err := fmt.Fprintf(w, httpHead+"%s", Model, head); err != nil {
			return err
		}
		return w.hold()
	}
}

func httpTrickle(ctx context.Context, t Target, tally *Tally) error {
	w, err := dial(ctx, t.HTTP, tally)
	if err != nil {
		return err
	}
	defer w.Close()
	if _, err := fmt.Fprintf(w, httpHead+"Content-Length: %d\r\n\r\n", Model, 16<<20); err != nil {
		return err
	}
	return w.trickle(ctx, zeros[:16<<20], 1<<10, 100*time.Millisecond)
}

func httpChunks(ctx context.Context, t Target, tally *Tally) error {
	w, err := dial(ctx, t.HTTP, tally)
	if err != nil {
		return err
	}
	defer w.Close()
	if _, err := fmt.Fprintf(w, httpHead+"Transfer-Encoding: chunked\r\n\r\n", Model); err != nil {
		return err
	}
	chunks := bytes.Repeat([]byte("1\r\n \r\n"), 1<<10)
	for range 4 << 10 {
		if _, err := w.Write(chunks); err != nil {
			return err
		}
	}
	_, err = w.Write([]byte("0\r\n\r\n"))
	return err
}

func httpSlowHeaders(ctx context.Context, t Target, tally *Tally) error {
	w, err := dial(ctx, t.HTTP, tally)
	if err != nil {
		return err
	}
	defer w.Close()
	return w.trickle(ctx, fmt.Appendf(nil, httpHead+"X: %s", Model, strings.Repeat("x", 8<<10)), 1, 500*time.Millisecond)
}

func httpUnread(ctx context.Context, t Target, tally *Tally) error {
	w, err := dial(ctx, t.HTTP, tally)
	if err != nil {
		return err
	}
	defer w.Close()
	body := unreadBody()
	for range 8 {
		if _, err := fmt.Fprintf(w, httpHead+"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n%s", Model, len(body), len(body)+4*unreadElements, body); err != nil {
			return err
		}
		if _, err := w.Write(zeros[:4*unreadElements]); err != nil {
			return err
		}
	}
	return w.ignore(ctx)
}

// unreadBody returns the JSON of a request with a large tensor in binary.
func unreadBody() string {
	return fmt.Sprintf(`{"inputs":[{"name":%q,"shape":[1,%d],"datatype":"FP32","parameters":{"binary_data_size":%d}}],"outputs":[{"name":%q,"parameters":{"binary_data":true}}]}`,
		peer.Input, unreadElements, 4*unreadElements, peer.Output)
}

// httpBody posts a body, reads the answer and posts it again.
func httpBody(body func() []byte, headers string) func(context.Context, Target, *Tally) error {
	return func(ctx context.Context, t Target, tally *Tally) error {
		w, err := dial(ctx, t.HTTP, tally)
		if err != nil {
			return err
		}
		defer w.Close()
		answers := bufio.NewReader(w)
		for {
			if _, err := fmt.Fprintf(w, httpHead+"%sContent-Length: %d\r\n\r\n", Model, headers, len(body())); err != nil {
				return err
			}
			if _, err := w.Write(body()); err != nil {
				return err
			}
			if err := readAnswer(answers); err != nil {
				return err
			}
		}
	}
}

func readAnswer(r *bufio.Reader) error {
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// httpJSON posts a body of jsonSize bytes that repeats one element between a
// begin and an end.
func httpJSON(begin, element, end string) func(context.Context, Target, *Tally) error {
	return httpBody(sync.OnceValue(func() []byte {
		separator := ","
		if end == "" {
			separator = "" // it nests
		}
		n := jsonSize / (len(element) + len(separator))
		return []byte(begin + strings.Repeat(element+separator, n-1) + element + end)
	}), "")
}

func httpMalformed(ctx context.Context, t Target, tally *Tally) error {
	w, err := dial(ctx, t.HTTP, tally)
	if err != nil {
		return err
	}
	defer w.Close()
	answers := bufio.NewReader(w)
	good := []byte(`{"id":"1","inputs":[{"name":"INPUT0","shape":[1,4],"datatype":"FP32","data":[1.5,2e3,-3,4]}],"outputs":[{"name":"OUTPUT0"}]}`)
	for {
		body := spoil(good)
		if _, err := fmt.Fprintf(w, httpHead+"Content-Length: %d\r\n\r\n%s", Model, len(body), body); err != nil {
			return err
		}
		if err := readAnswer(answers); err != nil {
			return err
		}
	}
}

// httpRestricted asks for what the server keeps to those with a header, with a
// large body.
func httpRestricted(ctx context.Context, t Target, tally *Tally) error {
	w, err := dial(ctx, t.HTTP, tally)
	if err != nil {
		return err
	}
	defer w.Close()
	if _, err := fmt.Fprintf(w, "GET /v2/models/stats HTTP/1.1\r\nHost: attack\r\nContent-Length: %d\r\n\r\n", 64<<20); err != nil {
		return err
	}
	if _, err := w.Write(zeros); err != nil {
		return err
	}
	return w.hold()
}
