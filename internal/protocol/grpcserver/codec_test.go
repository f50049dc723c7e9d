package grpcserver

import (
	"bytes"
	"context"
	"math"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"

	"shoal/internal/inflight"
	"shoal/internal/protocol/h2"
	"shoal/internal/race"
)

func TestParseTimeout(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"1H": time.Hour, "2M": 2 * time.Minute, "3S": 3 * time.Second, "4m": 4 * time.Millisecond, "5u": 5 * time.Microsecond,
		"6n": 6, "0n": 0, "99999999H": math.MaxInt64, "99999999M": 99999999 * time.Minute,
	} {
		if got, err := parseTimeout(s); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "1", "H", "1h", "-1S", "123456789S", "1.5S", "1 S", "\xff\xff"} {
		if got, err := parseTimeout(s); err == nil {
			t.Errorf("%q: got %v, want an error", s, got)
		}
	}
}

func FuzzMessageIsPercentEncoded(f *testing.F) {
	f.Add("plain")
	f.Add("50% \xff\n\U0001F41F")
	f.Fuzz(func(t *testing.T, s string) {
		whole, all := appendMessage(nil, s, math.MaxInt)
		enc := string(whole)
		if !all {
			t.Fatalf("%q: got %q and more, want all", s, enc)
		}
		for room := range min(len(enc), 100) {
			part, all := appendMessage(nil, s, room)
			if _, err := url.PathUnescape(string(part)); all || err != nil || len(part) > room || !strings.HasPrefix(enc, string(part)) {
				t.Fatalf("%q in %d bytes: got %q, all %v, %v, want a part of %q", s, room, part, all, err, enc)
			}
		}
		for _, c := range []byte(enc) {
			if c < ' ' || c > '~' {
				t.Fatalf("%q: got byte %x in %q, want printable ASCII", s, c, enc)
			}
		}
		got, err := url.PathUnescape(enc)
		if want := strings.ToValidUTF8(s, "\uFFFD"); err != nil || strings.ReplaceAll(got, "\uFFFD", "") != strings.ReplaceAll(want, "\uFFFD", "") {
			t.Errorf("%q: got %q back, %v, want %q", s, got, err, want)
		}
	})
}

// FuzzHeaderMeansTheSameAgain holds what is remembered of a header block against
// a reader that remembers nothing.
func FuzzHeaderMeansTheSameAgain(f *testing.F) {
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	for range 2 {
		for _, p := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/a/b"}, {":authority", "x"}, {"content-type", "application/grpc"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: p[0], Value: p[1]})
		}
	}
	f.Add(b.Bytes(), []byte{0x83, 0x86, 0xbe})
	f.Add([]byte{0x40, 1, 'a', 1, 'b'}, []byte{0xbe})
	s := New(Options{})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var h headerReader
		h.init()
		fields := func() (out []hpack.HeaderField, err error) {
			for _, block := range [][]byte{first, second, second} {
				r, e := h.parse(s, block)
				if e != nil {
					return nil, e
				}
				_ = r.metadata()
				out = append(out, r.fields...)
			}
			return out, nil
		}
		got, err := fields()
		if err != nil {
			return
		}
		var want []hpack.HeaderField
		plain := hpack.NewDecoder(h2.DefaultTable, func(f hpack.HeaderField) { want = append(want, f) })
		plain.SetMaxStringLength(maxHeaderList)
		for _, block := range [][]byte{first, second, second} {
			if _, err := plain.Write(block); err != nil {
				t.Fatalf("got fields, want %v", err)
			}
			_ = plain.Close()
		}
		for i, f := range got { // those of malformed headers are not kept
			if len(got) == len(want) && f != want[i] {
				t.Errorf("field %d: got %v, want %v", i, f, want[i])
			}
		}
	})
}

// A claim takes no memory: a message's takes a few times what has arrived.
func TestAssemblyTakesMemoryAsDataArrives(t *testing.T) {
	var a assembly
	pool := inflight.NewPool(nil)
	copy(a.prefix[:], []byte{0, 0x40, 0, 0, 0})
	a.begin(math.MaxInt32, pool)
	for got := 0; got < 1<<20; {
		part := a.room(1<<20, 100, 0, pool) // a frame of 1 MiB is announced, 100 bytes are there
		part = part[:min(len(part), 100)]
		a.add(len(part), pool)
		got += len(part)
		held := a.data.Len() + len(a.piece)
		if limit := (growth+1)*got + minPiece; held > limit {
			t.Fatalf("got %d bytes held after %d, want at most %d", held, got, limit)
		}
	}
}

// TestUnaryCallAllocatesLittle counts with a client that allocates nothing.
func TestUnaryCallAllocatesLittle(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector makes pools forget, so allocations say nothing")
	}
	s := start(t, Options{})
	s.methods["/test.Echo/Nothing"] = &method{name: "/test.Echo/Nothing", unary: func(_ any, _ context.Context, read func(any) error, _ grpcInterceptor) (any, error) {
		return nothing, read(nothing)
	}}
	s.opt.Codec = nothingCodec{}
	c := s.raw(t)
	c.open(1, false, usual("Nothing")...)
	c.check(c.framer.WriteData(1, true, []byte{0, 0, 0, 0, 0}))
	_ = c.outcome(1)
	block := c.fields(usual("Nothing")...)
	request := h2.AppendHeader(nil, len(block), 1, 4, 0)
	request = append(request, block...)
	request = append(h2.AppendHeader(request, prefixLen, 0, 1, 0), 0, 0, 0, 0, 0)
	answer := make([]byte, 1<<10)
	id := byte(1)
	got := testing.AllocsPerRun(100, func() {
		id += 2
		request[h2.HeaderLen-1], request[len(request)-prefixLen-1] = id, id
		if _, err := c.conn.Write(request); err != nil {
			t.Fatal(err)
		}
		for n := 0; n < 3*h2.HeaderLen+prefixLen+3; {
			m, err := c.conn.Read(answer)
			if err != nil {
				t.Fatal(err)
			}
			n += m
		}
	})
	if got > 2 {
		t.Errorf("got %v allocations a call, want the call itself and little beside", got)
	}
}
