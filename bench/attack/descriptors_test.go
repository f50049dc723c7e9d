package main

import (
	"context"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"shoal/bench/internal/ask"
	"shoal/bench/internal/attack"
	"shoal/bench/internal/peer"
)

// TestHealthAnswersWhenDescriptorsAreUsedUp opens more connections than the
// server may have files, to both ports, and asks for health and metrics over new
// connections.
func TestHealthAnswersWhenDescriptorsAreUsedUp(t *testing.T) {
	s := newStage(t)
	repository := filepath.Join(s.work, "models")
	if err := ask.Write(repository, small); err != nil {
		t.Fatal(err)
	}
	server, err := peer.Start(t.Context(), peer.Command{
		Name: "shoal", Log: filepath.Join(s.work, "shoal.log"),
		Args: []string{"sh", "-c", `ulimit -n 256 && exec "$0" "$@"`, s.shoal, "serve", "--model-repository", repository},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	target := attack.Target{HTTP: server.HTTP, GRPC: server.GRPC}
	tally := new(attack.Tally)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, c := range attack.All() {
		if c.Name == "http-idle" || c.Name == "grpc-idle" {
			wg.Go(func() { c.Run(ctx, target, 300, tally) })
		}
	}
	// Refused ones count too: a dial succeeds in the kernel.
	for deadline := time.Now().Add(time.Minute); tally.Conns.Load() < 600; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of 600 connections after a minute", tally.Conns.Load())
		}
	}
	// On a free machine answers take milliseconds; a server without a descriptor left
	// was silent for 22 s.
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for range 20 {
		for _, url := range []string{"http://" + server.HTTP + "/v2/health/live", "http://" + server.HTTP + "/v2/health/ready", "http://" + server.Metrics + "/metrics"} {
			start := time.Now()
			response, err := client.Get(url)
			if err != nil {
				t.Fatalf("with 600 idle connections and 256 files: %v", err)
			}
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				t.Errorf("%s: got %s, want 200", url, response.Status)
			}
			t.Logf("%s after %v", url, time.Since(start))
		}
	}
}
