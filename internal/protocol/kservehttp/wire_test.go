package kservehttp

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A recording is an exchange with the original server: what was sent, what
// came back and whether the connection stayed open.
type recording struct {
	request, response []byte
	open              bool
}

// readRecording reads lines of "> " and a quoted string for the request, "< "
// for the response, and "= open" or "= closed".
func readRecording(t *testing.T, path string) (rec recording) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		mark, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch mark {
		case "#":
		case "=":
			rec.open = rest == "open"
		case ">", "<":
			s, err := strconv.Unquote(rest)
			if err != nil {
				t.Fatalf("%s: %q: %v", path, rest, err)
			}
			if mark == ">" {
				rec.request = append(rec.request, s...)
			} else {
				rec.response = append(rec.response, s...)
			}
		default:
			t.Fatalf("%s: unknown line %q", path, line)
		}
	}
	return rec
}

// TestAnswersAreThoseOfTheOriginal sends what the original server was sent and
// holds the answers against its. A recording in which ours is better on purpose
// says so in a comment.
func TestAnswersAreThoseOfTheOriginal(t *testing.T) {
	paths, err := filepath.Glob("testdata/wire/*.txt")
	if err != nil || len(paths) < 120 {
		t.Fatalf("got %d recordings (%v), want at least 120", len(paths), err)
	}
	addr := start(t, startEngine(t, recordedModels), Options{})
	odd := start(t, startEngine(t, oddModels), Options{})
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".txt")
		t.Run(name, func(t *testing.T) {
			to := addr
			if name == "classification_labels" {
				to = odd
			}
			playRecording(t, to, readRecording(t, path))
		})
	}
}

func playRecording(t *testing.T, addr string, rec recording) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write(rec.request); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	if len(rec.response) > 0 {
		method, _, _ := strings.Cut(string(rec.request), " ")
		asked := &http.Request{Method: method}
		want := parseAnswer(t, bufio.NewReader(bytes.NewReader(rec.response)), asked)
		got := parseAnswer(t, r, asked)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("answer (-want +got):\n%s", diff)
		}
	}
	if rec.open {
		io.WriteString(c, "GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
		if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 200 {
			t.Errorf("next request on the connection: got %v (%v), want 200", resp, err)
		}
		return
	}
	if b, err := r.ReadByte(); err != io.EOF {
		t.Errorf("after the answer: got %q (%v), want a closed connection", b, err)
	}
}

// parseAnswer reads an answer as one text: the status line, the headers that
// matter in order, and the body unpacked, with times and counts left out.
func parseAnswer(t *testing.T, r *bufio.Reader, asked *http.Request) string {
	t.Helper()
	resp, err := http.ReadResponse(r, asked)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(resp.Proto + " " + resp.Status + "\n")
	var src io.Reader = bytes.NewReader(body)
	encoding := resp.Header.Get("Content-Encoding")
	switch encoding {
	case "gzip":
		src, err = gzip.NewReader(src)
	case "deflate":
		src, err = zlib.NewReader(src)
	default:
		if !masked.Match(body) {
			b.WriteString("Content-Length: " + resp.Header.Get("Content-Length") + "\n")
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if body, err = io.ReadAll(src); err != nil {
		t.Fatal(err)
	}
	if bytes.HasPrefix(body, []byte(`{"error":`)) || asked.Method == "HEAD" {
		resp.Header.Set("Content-Type", "application/json") // ours always; the original's varies
	}
	for _, name := range []string{"Content-Type", "Content-Encoding", "Inference-Header-Content-Length", "Accept-Encoding", "Server", "Date"} {
		if v := resp.Header.Get(name); v != "" {
			b.WriteString(name + ": " + v + "\n")
		}
	}
	b.WriteString("\n")
	b.Write(masked.ReplaceAll(body, []byte(`"$1$2":0`)))
	return b.String()
}

// masked matches what statistics count, which no two runs share, and the list
// of extensions, which the engine answers for.
var masked = regexp.MustCompile(`"(last_inference|inference_count|execution_count|count|ns)":\d+|"(extensions)":\[[^\]]*\]`)
