package httpserver

import (
	"testing"

	"shoal/internal/protocol/compression"
)

func TestAcceptedEncodingHasTheGreatestWeight(t *testing.T) {
	for _, c := range []struct {
		header string
		want   compression.Format
	}{
		{"", compression.Identity},
		{"gzip", compression.Gzip},
		{"GZIP", compression.Gzip},
		{"deflate, gzip", compression.Deflate},
		{"gzip;q=0.5, deflate;q=0.8", compression.Deflate},
		{"gzip;q=0.5,identity", compression.Identity},
		{"gzip;q=0", compression.Identity},
		{"br, zstd", compression.Identity},
		{"br;q=1.0, gzip;q=0.2, *;q=0.1", compression.Gzip},
		{"gzip;q=x", compression.Identity},
	} {
		if got := acceptedEncoding([]byte(c.header)); got != c.want {
			t.Errorf("%q: got %s, want %s", c.header, got, c.want)
		}
	}
}
