package httpserver

import "testing"

func TestAcceptedEncodingHasTheGreatestWeight(t *testing.T) {
	for _, c := range []struct {
		header string
		want   Encoding
	}{
		{"", Identity},
		{"gzip", Gzip},
		{"GZIP", Gzip},
		{"deflate, gzip", Deflate},
		{"gzip;q=0.5, deflate;q=0.8", Deflate},
		{"gzip;q=0.5,identity", Identity},
		{"gzip;q=0", Identity},
		{"br, zstd", Identity},
		{"br;q=1.0, gzip;q=0.2, *;q=0.1", Gzip},
		{"gzip;q=x", Identity},
	} {
		if got := acceptedEncoding([]byte(c.header)); got != c.want {
			t.Errorf("%q: got %s, want %s", c.header, got, c.want)
		}
	}
}
