package load

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"shoal/internal/client"
	"shoal/internal/tensor"
)

func TestHTTPRequestsCarryTheirSequence(t *testing.T) {
	bodies := make(chan string, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies <- string(b)
		w.Header().Set("Content-Length", "0")
	}))
	defer server.Close()
	link := NewHTTPLink(strings.TrimPrefix(server.URL, "http://"), nil)
	r := client.Request{Sequenced: true, Inputs: []client.Tensor{{Type: tensor.Uint8, Shape: []int64{100_000}, Data: bytes.Repeat([]byte("x"), 100_000)}}}
	_, _, body, err := client.EncodeHTTP(&r, client.Binary, client.JSON)
	if err != nil {
		t.Fatal(err)
	}
	_, tail, _ := strings.Cut(string(body), "}")
	m := link.Message("/infer", nil, body)
	conns, _ := link.Conns(1)
	defer conns[0].Close()
	x := Exchange{}
	for _, s := range []client.Sequence{{ID: 7, Start: true}, {ID: 7}, {ID: 8, End: true}} {
		x.Sequence = s
		if err := conns[0].Do(context.Background(), m, &x); err != nil {
			t.Fatal(err)
		}
		head, rest, _ := strings.Cut(<-bodies, "}")
		if want := `{"parameters":{` + string(s.AppendJSON(nil)); head != want || rest != tail {
			t.Errorf("%v: got %s and %d bytes, want %s and %d", s, head, len(rest), want, len(tail))
		}
	}
}
