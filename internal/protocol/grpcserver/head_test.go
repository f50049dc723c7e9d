package grpcserver

import (
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"shoal/internal/protocol/h2"
)

// TestHeadsOfAnyKindAreUnderstood sends random heads to clients with random
// limits and tables, and reads them with another's decoder, which notices when
// its table and ours differ.
func TestHeadsOfAnyKindAreUnderstood(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 11))
		c := newConn(New(Options{}), nil)
		c.writing = true // nothing is written, so that it can be read here
		d := newHeadReader(t, seed)
		for range 30 {
			if r.IntN(4) == 0 {
				id, v := randomSetting(r)
				if err := c.setLocked(id, v); err != nil {
					t.Fatal(err)
				}
				if id == http2.SettingHeaderTableSize {
					d.decoder.SetAllowedMaxDynamicTableSize(v)
				}
			}
			h := randomHead(r)
			want := *h
			c.out.reset()
			sent := c.putHeadLocked(h, 1, true)
			d.check(c, &want, sent)
		}
	}
}

func randomSetting(r *rand.Rand) (http2.SettingID, uint32) {
	switch r.IntN(3) {
	case 0:
		return http2.SettingHeaderTableSize, []uint32{0, 50, 4096, 65536}[r.IntN(4)]
	case 1:
		return http2.SettingMaxFrameSize, h2.MinMaxFrame + uint32(r.IntN(1000))
	default:
		return http2.SettingMaxHeaderListSize, []uint32{0, 60, 150, 400, 8192, 16384, 1 << 20}[r.IntN(7)] + uint32(r.IntN(100))
	}
}

var letters = []string{"a", "é", "%", "\n", "\U0001F41F", "\xff", "word "}

func randomText(r *rand.Rand) string {
	if r.IntN(3) == 0 {
		return ""
	}
	return strings.Repeat(letters[r.IntN(len(letters))], r.IntN(1<<r.IntN(15))+1) + letters[r.IntN(len(letters))]
}

func randomHead(r *rand.Rand) *head {
	h := new(head)
	if r.IntN(4) > 0 {
		h.http = []int{200, 200, 415}[r.IntN(3)]
		h.subtype = []string{"", "", "proto", strings.Repeat("x", 50)}[r.IntN(4)]
	}
	if r.IntN(5) == 0 {
		h.encoding = "gzip"
	}
	switch r.IntN(3) {
	case 0:
		h.status = statusOK
	case 1:
		h.status = status.New(codes.Code(1+r.IntN(16)), randomText(r))
		if with, err := h.status.WithDetails(wrapperspb.Bytes(make([]byte, r.IntN(3000)))); err == nil && r.IntN(2) == 0 {
			h.status = with
		}
	}
	for i := range r.IntN(3) {
		if h.md == nil {
			h.md = metadata.MD{"te": {"reserved"}}
		}
		h.md["k"+strconv.Itoa(i)] = []string{"v", strings.Repeat("w", r.IntN(500))}
		h.md["k"+strconv.Itoa(i)+"-bin"] = []string{"\x00\xff"}
	}
	return h
}

// A headReader reads heads as a client does.
type headReader struct {
	t       *testing.T
	seed    uint64
	decoder *hpack.Decoder
	fields  map[string][]string
	size    int64
}

func newHeadReader(t *testing.T, seed uint64) *headReader {
	d := &headReader{t: t, seed: seed}
	d.decoder = hpack.NewDecoder(h2.DefaultTable, func(f hpack.HeaderField) {
		d.fields[f.Name] = append(d.fields[f.Name], f.Value)
		d.size += int64(f.Size())
	})
	return d
}

// check reads what the connection put out.
func (d *headReader) check(c *conn, want *head, sent bool) {
	d.t.Helper()
	d.fields, d.size = make(map[string][]string), 0
	most, usual := c.settings.headerLimits()
	for out := c.out.buf; len(out) > 0; {
		h := h2.ParseHeader(out)
		payload := out[h2.HeaderLen : h2.HeaderLen+h.Length]
		out = out[h2.HeaderLen+h.Length:]
		if !sent {
			if h.Kind != http2.FrameRSTStream || want.fixedSize() <= most {
				d.t.Fatalf("seed %d: got %v for a head of at least %d bytes, limit %d", d.seed, h.Kind, want.fixedSize(), most)
			}
			return
		}
		if h.Length > c.settings.maxFrame {
			d.t.Fatalf("seed %d: got a frame of %d bytes, want at most %d", d.seed, h.Length, c.settings.maxFrame)
		}
		if _, err := d.decoder.Write(payload); err != nil {
			d.t.Fatalf("seed %d: got %v from the decoder", d.seed, err)
		}
	}
	if err := d.decoder.Close(); err != nil {
		d.t.Fatalf("seed %d: got %v from the decoder", d.seed, err)
	}
	if d.size > most {
		d.t.Errorf("seed %d: got a list of %d bytes, want at most %d", d.seed, d.size, most)
	}
	d.compare(want, most, usual)
}

// compare holds the fields against what was to be sent.
func (d *headReader) compare(want *head, most, usual int64) {
	d.t.Helper()
	expect := func(name, value string) {
		d.t.Helper()
		if got := strings.Join(d.fields[name], ";"); got != value {
			d.t.Errorf("seed %d: got %s %.80q, want %.80q", d.seed, name, got, value)
		}
	}
	if want.http != 0 {
		expect(":status", strconv.Itoa(want.http))
		if s := want.answeredSubtype(); s != "" {
			expect("content-type", contentType+"+"+s)
		} else {
			expect("content-type", contentType)
		}
	}
	expect("grpc-encoding", want.encoding)
	expect("te", "")
	mdSize := metadataSize(want.md)
	for name, values := range want.md {
		if name == "te" || want.fixedSize()+mdSize > most {
			continue
		}
		if strings.HasSuffix(name, binarySuffix) {
			values = []string{"AP8"}
		}
		expect(name, strings.Join(values, ";"))
	}
	if want.status == nil {
		expect("grpc-status", "")
		return
	}
	expect("grpc-status", strconv.Itoa(int(want.status.Code())))
	d.compareMessage(want.status, usual)
}

func (d *headReader) compareMessage(st *status.Status, usual int64) {
	d.t.Helper()
	got, err := url.PathUnescape(strings.Join(d.fields["grpc-message"], ";"))
	if err != nil || !utf8.ValidString(got) {
		d.t.Fatalf("seed %d: got message %.80q, %v, want UTF-8 in percent-encoding", d.seed, got, err)
	}
	whole := string([]rune(st.Message())) // with replacements
	text, mark, cut := strings.Cut(got, "... (cut, ")
	switch {
	case got == whole || got == "":
	case !cut || !strings.HasPrefix(whole, text) || mark != strconv.Itoa(len(st.Message()))+" bytes in all)":
		d.t.Errorf("seed %d: got message %.80q, want the beginning of %.80q", d.seed, got, whole)
	}
	if got != whole && len(d.fields["grpc-status-details-bin"]) > 0 {
		d.t.Errorf("seed %d: got details with a message that is cut", d.seed)
	}
	if got != whole && d.size+4*utf8.UTFMax*3 < usual-100 {
		d.t.Errorf("seed %d: got a list of %d bytes with a message that is cut, want about %d", d.seed, d.size, usual)
	}
}

// TestLongErrorsLeaveTheConnectionUsable makes calls that fail with long texts,
// from clients with all kinds of limits, and calls that go well between them.
func TestLongErrorsLeaveTheConnectionUsable(t *testing.T) {
	s := start(t, Options{})
	for _, limit := range []uint32{500, 8 << 10, 16 << 10, 1 << 20} {
		conn := s.dial(t, grpc.WithMaxHeaderListSize(limit))
		for round := range 3 {
			if got, err := call1(testContext(t), conn, "Say", []byte("hello")); err != nil || string(got) != "hello" {
				t.Fatalf("limit %d, round %d: got %q, %v", limit, round, got, err)
			}
			_, err := call1(testContext(t), conn, "Fail", []byte(strings.Repeat("long ", 4000)))
			text := status.Convert(err).Message()
			if status.Code(err) != codes.NotFound || !strings.HasPrefix(text, "long long") || !strings.HasSuffix(text, "(cut, 20000 bytes in all)") && limit < 1<<20 {
				t.Fatalf("limit %d, round %d: got %.100v, want NotFound with a cut text", limit, round, err)
			}
		}
	}
}

// A client that takes less than any answer gets a reset, and is understood when
// it takes more again.
func TestClientThatTakesNoHeadersIsReset(t *testing.T) {
	s := start(t, Options{})
	c := s.raw(t, http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 50})
	for i, want := range []string{"RST INTERNAL_ERROR", "OK", "OK"} {
		if i == 1 {
			c.check(c.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 16 << 10}))
		}
		id := uint32(2*i + 1)
		c.open(id, false, usual("Say")...)
		c.check(c.framer.WriteData(id, true, rawMessage(3)))
		if got := c.outcome(id); got != want {
			t.Errorf("call %d: got %s, want %s", i, got, want)
		}
	}
}
