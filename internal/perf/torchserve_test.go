package perf

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"shoal/internal/client"
	"shoal/internal/perf/input"
	"shoal/internal/perf/result"
)

func TestTorchServeGetsTheFilesThatTheDataNames(t *testing.T) {
	var mu sync.Mutex
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// As TorchServe 0.12 was seen to: fields of a form have their names, an
		// answer has no content type and some headers of its own.
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.URL.Path+" "+r.FormValue("data"))
		w.Header()["Content-Type"] = nil
		w.Header().Set("x-request-id", "0a36c4a8-252b-4249-9a6f-abe7a18a10d4")
		w.Header().Set("connection", "keep-alive")
		io.WriteString(w, "ok")
	}))
	defer server.Close()
	folder := t.TempDir()
	var steps []string
	for _, name := range []string{"a", "b"} {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte("content of "+name), 0o600); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, fmt.Sprintf(`{"TORCHSERVE_INPUT":[%q]}`, path))
	}
	data := filepath.Join(folder, "data.json")
	if err := os.WriteFile(data, []byte(`{"data":[`+strings.Join(steps, ",")+`]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := Settings{
		Service: TorchServe, Address: client.Address{Host: strings.TrimPrefix(server.URL, "http://")}, Protocol: result.HTTP, Model: "net", Version: "1.0",
		Mode: result.Concurrency, Range: single(1), Input: input.Options{Sources: []string{data}},
		Plan: result.Plan{BatchSize: 1, Mode: result.RequestCount, RequestCount: 4, MaxTrials: 1, Stability: 1, MaxOutstanding: 1},
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	session, err := Open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	r, err := session.Run(t.Context(), &logbook{})
	if err != nil || r.Levels[0].Merged.Requests != 4 || r.Levels[0].Merged.Server != nil {
		t.Fatalf("got %+v, %v, want 4 requests and no statistics", r.Levels[0].Merged, err)
	}
	a, b := "/predictions/net/1.0 content of a", "/predictions/net/1.0 content of b"
	if want := []string{a, b, a, b}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTorchServeWantsFilesToSend(t *testing.T) {
	_, err := Open(t.Context(), Settings{Service: TorchServe, Model: "net"})
	if err == nil || !strings.Contains(err.Error(), "--input-data") {
		t.Errorf("got %v, want one that names the flag", err)
	}
	s := Settings{Service: TorchServe, Model: "net", Protocol: result.GRPC, Export: true, Plan: result.Plan{BatchSize: 2, Mode: result.TimeWindows, Window: time.Second, MaxTrials: 5, MaxOutstanding: 512}}
	for _, want := range []string{"leave -i out", "-b must be 1", "--profile-export-file"} {
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

func TestTorchServeErrorsAreTheServers(t *testing.T) {
	const said = "{\n  \"code\": 404,\n  \"type\": \"ModelNotFoundException\",\n  \"message\": \"Model not found: net\"\n}\n"
	if got := client.ErrorText(404, []byte(said)); got != "Model not found: net" {
		t.Errorf("got %q, want the server's words", got)
	}
}
