package accesslog

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"shoal/internal/infer"
	"shoal/internal/race"
)

// full is a request with everything that can be known of one.
func full(l *Log) *Entry {
	e := l.Begin("HTTP/2.0")
	e.begin = time.Date(2026, 11, 16, 10, 58, 0, 123456789, time.UTC)
	Ask(e, "POST", `/v2/"models"`)
	e.Client = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4711}
	e.Status, e.Code, e.Bytes = 200, "OK", 188
	e.Model("digits", 3)
	e.Ran(&infer.Request{ID: "a\nb", Rows: 4})
	begin := time.Time{}
	e.Spent.Add(12*time.Microsecond, &infer.Times{Start: begin, InputsReady: begin, OutputsOut: begin.Add(250 * time.Microsecond), End: begin.Add(300 * time.Microsecond)})
	return e
}

var took = regexp.MustCompile(`total_us("?[:=])\d+`)

func TestForms(t *testing.T) {
	for _, c := range []struct {
		name string
		form Form
		make func(*Log) *Entry
		want string
	}{
		{"common", Common, full, `127.0.0.1 - - [16/Nov/2026:10:58:00 +0000] "POST /v2/\"models\" HTTP/2.0" 200 188 grpc=OK model="digits" version="3" rows=4 queue_us=12 compute_us=300 total_us=N id="a\x0ab"` + "\n"},
		{"JSON", JSON, full, `{"time":"2026-11-16T10:58:00.123456Z","client":"127.0.0.1:4711","protocol":"HTTP/2.0","method":"POST","path":"/v2/\"models\"","status":200,"grpc_status":"OK","response_bytes":188,"model":"digits","version":"3","request_id":"a\u000ab","rows":4,"queue_us":12,"compute_us":300,"total_us":N}` + "\n"},
		{"common, of nothing but a head", Common, func(l *Log) *Entry {
			e := l.Begin("HTTP/1.1")
			e.begin, e.Client, e.Status = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), &net.UnixAddr{Name: "/run/s"}, 404
			Ask(e, "GET", "/x")
			return e
		}, `- - - [02/Jan/2026:03:04:05 +0000] "GET /x HTTP/1.1" 404 0 total_us=N` + "\n"},
		{"JSON, of a version that is no number", JSON, func(l *Log) *Entry {
			e := l.Begin("HTTP/1.1")
			e.begin, e.Client = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), &net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0", Port: 1}
			e.Status = 200
			e.ModelText("noop", "1.0")
			return e
		}, `{"time":"2026-01-02T03:04:05.000000Z","client":"[fe80::1%eth0]:1","protocol":"HTTP/1.1","method":"","path":"","status":200,"response_bytes":0,"model":"noop","version":"1.0","total_us":N}` + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			l := New(&b, c.form)
			l.End(c.make(l))
			if got := took.ReplaceAllString(b.String(), "total_us${1}N"); got != c.want {
				t.Errorf("got  %swant %s", got, c.want)
			}
		})
	}
}

func TestAnEntryForgetsTheRequestBeforeIt(t *testing.T) {
	var b bytes.Buffer
	l := New(&b, JSON)
	e := full(l)
	e.reset()
	e.begin, e.protocol, e.Status = time.Now(), "HTTP/1.1", 200
	b.Write(e.appendJSON(nil, time.Second))
	for _, rest := range []string{"digits", "models", "127.0.0.1", "rows", "request_id", "grpc"} {
		if strings.Contains(b.String(), rest) {
			t.Errorf("got %s, want nothing of %s", b.String(), rest)
		}
	}
}

func TestFormsByName(t *testing.T) {
	for name, want := range map[string]Form{"common": Common, "json": JSON} {
		if got, err := ParseForm(name); got != want || err != nil {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	if _, err := ParseForm("xml"); err == nil || !strings.Contains(err.Error(), "want common or json") {
		t.Errorf("got %v, want the names that there are", err)
	}
}

// FuzzLine: whatever a client sends, an entry is one line, and in JSON one object
// with the client's text.
func FuzzLine(f *testing.F) {
	f.Add("POST", "/v2/models/digits/infer", "digits", "7")
	f.Add("\x00", "\"\n\\", "\xff\xfe", "\u2028")
	f.Fuzz(func(t *testing.T, method, target, model, id string) {
		for _, form := range []Form{Common, JSON} {
			var b bytes.Buffer
			l := New(&b, form)
			e := l.Begin("HTTP/1.1")
			Ask(e, method, target)
			e.Model(model, 1)
			e.Ran(&infer.Request{ID: id, Rows: 1})
			l.End(e)
			if line := b.String(); strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "\n") {
				t.Fatalf("got %q, want one line", line)
			}
			if form == Common {
				continue
			}
			var got struct{ Method, Path, Model, Request_ID string } //nolint:revive // as it is written
			if err := json.Unmarshal(b.Bytes(), &got); err != nil {
				t.Fatalf("%q: %v", b.String(), err)
			}
			for _, p := range [][2]string{{got.Method, method}, {got.Path, target}, {got.Model, model}, {got.Request_ID, id}} {
				if want := strings.ToValidUTF8(p[1], "\uFFFD"); len(want) == len(p[1]) && p[0] != want {
					t.Errorf("got %q, want %q", p[0], want)
				}
			}
		}
	})
}

func TestAnEntryAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, form := range []Form{Common, JSON} {
		l := New(io.Discard, form)
		if n := testing.AllocsPerRun(200, func() { l.End(entry(l)) }); n != 0 {
			t.Errorf("form %d: got %v allocations, want 0", form, n)
		}
	}
}

var client net.Addr = &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 4711}

var request = infer.Request{ID: "1", Rows: 1}

// entry is that of a usual request.
func entry(l *Log) *Entry {
	e := l.Begin("HTTP/1.1")
	Ask(e, "POST", "/v2/models/digits/infer")
	e.Client, e.Status, e.Bytes = client, 200, 188
	e.Model("digits", 1)
	e.Ran(&request)
	return e
}

func BenchmarkEntry(b *testing.B) {
	for name, form := range map[string]Form{"common": Common, "json": JSON} {
		b.Run(name, func(b *testing.B) {
			l := New(io.Discard, form)
			b.ReportAllocs()
			for b.Loop() {
				l.End(entry(l))
			}
		})
	}
}
