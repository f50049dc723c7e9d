package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shoal/internal/client"
)

// serve starts an HTTP server on loopback and returns its address.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// echo answers with the request's body.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", fmt.Sprint(r.ContentLength))
	io.Copy(w, r.Body)
}

func open(t *testing.T, target Target, callers int) *Generator {
	t.Helper()
	g, err := Open(t.Context(), target, callers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

func TestRunMakesExactlyTheRequestsAskedFor(t *testing.T) {
	var served atomic.Int64
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		echo(w, r)
	})
	g := open(t, NewHTTP(address, "/x", nil, []byte("hello"), nil), 4)
	for round := range int64(2) {
		r, err := g.Run(t.Context(), Limit{Requests: 1000})
		if err != nil || r.Requests != 1000 || r.Failed() != 0 {
			t.Fatalf("got %d requests, %v, %v, want 1000 without errors", r.Requests, r.Errors, err)
		}
		if got, want := served.Load(), 4+1000*(round+1); got != want { // 4 first requests
			t.Errorf("the server saw %d requests, want %d", got, want)
		}
		if r.Latency.Count() != 1000 || r.Latency.Quantile(0.5) <= 0 || r.Throughput() <= 0 {
			t.Errorf("got %d latencies, p50 %v, %v/s, want 1000 and positive ones",
				r.Latency.Count(), r.Latency.Quantile(0.5), r.Throughput())
		}
	}
}

func TestRunLastsAsLongAsItsDuration(t *testing.T) {
	g := open(t, NewHTTP(serve(t, echo), "/x", nil, []byte("hello"), nil), 2)
	const d = 50 * time.Millisecond
	r, err := g.Run(t.Context(), Limit{Duration: d})
	if err != nil || r.Elapsed < d || r.Requests == 0 {
		t.Errorf("got %d requests in %v, %v, want some in at least %v", r.Requests, r.Elapsed, err, d)
	}
}

func TestRunEndsAtTheFirstLimit(t *testing.T) {
	g := open(t, NewHTTP(serve(t, echo), "/x", nil, []byte("hello"), nil), 2)
	r, err := g.Run(t.Context(), Limit{Requests: 3, Duration: time.Hour})
	if err != nil || r.Requests != 3 {
		t.Errorf("got %d requests, %v, want 3", r.Requests, err)
	}
}

func TestRunWithoutALimitIsRefused(t *testing.T) {
	g := open(t, NewHTTP(serve(t, echo), "/x", nil, nil, nil), 1)
	if _, err := g.Run(t.Context(), Limit{}); err == nil {
		t.Error("got no error, want one")
	}
}

func TestRunCountsErrorsByKind(t *testing.T) {
	var n atomic.Int64
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) % 10 { // the first request is number 1
		case 3, 4:
			http.Error(w, "no", http.StatusServiceUnavailable)
		case 7:
			panic(http.ErrAbortHandler) // the connection ends without an answer
		default:
			echo(w, r)
		}
	})
	g := open(t, NewHTTP(address, "/x", nil, []byte("hello"), nil), 1)
	r, err := g.Run(t.Context(), Limit{Requests: 100})
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests != 70 || r.Errors["http 503"] != 20 || r.Errors["closed by server"] != 10 || r.Failed() != 30 {
		t.Errorf("got %d answers and %v, want 70, 20 times http 503 and 10 times closed by server", r.Requests, r.Errors)
	}
	if r.FirstError == nil {
		t.Error("got no first error, want one")
	}
}

func TestCallerConnectsAgainWhenTheServerCloses(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		echo(w, r)
	})
	g := open(t, NewHTTP(address, "/x", nil, []byte("hello"), nil), 2)
	r, err := g.Run(t.Context(), Limit{Requests: 20})
	if err != nil || r.Requests != 20 || r.Failed() != 0 {
		t.Errorf("got %d answers, %v, %v, want 20 without errors", r.Requests, r.Errors, err)
	}
}

func TestCallersGiveUpOnADeadServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(echo)}
	var wg sync.WaitGroup
	wg.Go(func() { s.Serve(l) })
	g := open(t, NewHTTP(l.Addr().String(), "/x", nil, []byte("hello"), nil), 2)
	s.Close()
	wg.Wait()
	r, err := g.Run(t.Context(), Limit{Duration: time.Hour})
	if err != nil || r.Requests != 0 || r.Failed() != 2*giveUpAfter || r.Errors["connect"] == 0 {
		t.Errorf("got %d answers, %v, %v, want %d failures to connect", r.Requests, r.Errors, err, 2*giveUpAfter)
	}
}

func TestRunEndsWithItsContextWhenTheServerHangs(t *testing.T) {
	var n atomic.Int64
	hanging := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) > 1 {
			cancel()
			<-hanging
		}
		echo(w, r)
	})
	t.Cleanup(func() { close(hanging) }) // runs before the server is closed
	g := open(t, NewHTTP(address, "/x", nil, []byte("hello"), nil), 1)
	r, err := g.Run(ctx, Limit{Requests: 10})
	if !errors.Is(err, context.Canceled) || r.Requests != 0 {
		t.Errorf("got %d answers, %v, want none and that the context was cancelled", r.Requests, err)
	}
}

func TestOpenChecksTheFirstAnswerOfEachCaller(t *testing.T) {
	var checked []string
	check := func(body []byte) error {
		checked = append(checked, string(body))
		return nil
	}
	big := strings.Repeat("0123456789", 100_000) // more than one read
	open(t, NewHTTP(serve(t, echo), "/x", nil, []byte(big), check), 3)
	if len(checked) != 3 || checked[0] != big || checked[2] != big {
		t.Errorf("got %d answers checked, want 3 of %d bytes", len(checked), len(big))
	}
}

func TestOpenSaysWhyTheFirstAnswerIsWrong(t *testing.T) {
	wrong := errors.New("not what was sent")
	_, err := Open(t.Context(), NewHTTP(serve(t, echo), "/x", nil, nil, func([]byte) error { return wrong }), 1)
	if !errors.Is(err, wrong) {
		t.Errorf("got %v, want what the check said", err)
	}
	refuse := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such model", http.StatusNotFound) }
	_, err = Open(t.Context(), NewHTTP(serve(t, refuse), "/x", nil, nil, nil), 1)
	if err == nil || !strings.Contains(err.Error(), "404") || !strings.Contains(err.Error(), "no such model") {
		t.Errorf("got %v, want the status and what the server said", err)
	}
}

func TestHTTPSendsWhatItWasGiven(t *testing.T) {
	got := make(chan string, 1)
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- fmt.Sprintf("%s %s %s %s %s", r.Method, r.URL.Path, r.Host, r.Header.Get("Content-Type"), body)
		w.WriteHeader(http.StatusNoContent)
	})
	open(t, NewHTTP(address, "/v2/x", []client.Header{{Name: "Content-Type", Value: "application/json"}}, []byte("{}"), nil), 1)
	if got, want := <-got, "POST /v2/x "+address+" application/json {}"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
