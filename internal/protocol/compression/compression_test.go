package compression

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// pack returns text compressed.
func pack(t *testing.T, f Format, level int, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := f.NewWriter(&out, level)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// What is used again must not remember what it had: another message, or a fault.
func TestReadersAndWritersAreUsedAgain(t *testing.T) {
	for _, f := range []Format{Gzip, Deflate} {
		for i, level := range []int{DefaultLevel, 1, 9, 1, DefaultLevel} {
			text := strings.Repeat(f.String(), 100*i)
			packed := pack(t, f, level, text)
			if _, err := f.NewReader(strings.NewReader("garbage")); err == nil {
				t.Errorf("%s: garbage: got no error", f)
			}
			if cut, err := f.NewReader(bytes.NewReader(packed[:len(packed)-2])); err == nil {
				if _, err := io.ReadAll(cut); err == nil {
					t.Errorf("%s: cut short: got no error", f)
				}
				_ = cut.Close()
			}
			r, err := f.NewReader(bytes.NewReader(packed))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); err != nil || string(got) != text {
				t.Errorf("%s at level %d: got %.40q (%v), want %.40q", f, level, got, err, text)
			}
			_ = r.Close()
		}
	}
}

func TestParse(t *testing.T) {
	for name, want := range map[string]Format{"identity": Identity, "GZip": Gzip, "deflate": Deflate} {
		if got, ok := Parse([]byte(name)); got != want || !ok {
			t.Errorf("%q: got %v, %v, want %v", name, got, ok, want)
		}
	}
	for _, name := range []string{"", "br", "gzip "} {
		if got, ok := Parse([]byte(name)); ok {
			t.Errorf("%q: got %v, want none", name, got)
		}
	}
}

func TestLimit(t *testing.T) {
	for _, c := range []struct {
		name         string
		packed       int
		limit, ratio int64
		want         int64
	}{
		{"the ratio does not matter below 16 MiB", 1, 64 << 20, 100, 16 << 20},
		{"the ratio holds", 1 << 20, 64 << 20, 20, 20 << 20},
		{"the limit holds", 1 << 20, 8 << 20, 100, 8 << 20},
	} {
		if got := Limit(c.packed, c.limit, c.ratio); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}
