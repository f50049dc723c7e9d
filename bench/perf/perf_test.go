package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTrivialServerIsHTTP(t *testing.T) {
	s, err := startTrivial()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	resp, err := http.Post("http://"+s.Address()+"/v2/models/trivial/infer", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.ContentLength != int64(len(trivialInfer)) {
		t.Errorf("got %d with %d bytes, want 200 with %d", resp.StatusCode, resp.ContentLength, len(trivialInfer))
	}
}

func TestPerfAnalyzersReportIsRead(t *testing.T) {
	dir := t.TempDir()
	script := `#!/bin/sh
printf '%s\n' 'Concurrency,Inferences/Second,Client Send,p50 latency,p90 latency,p95 latency,p99 latency' '4,1000.5,3,100,150,160,200' > "$2"
echo '    Request count: 3000'
`
	if err := os.WriteFile(filepath.Join(dir, "perf_analyzer"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := theirs(context.Background(), options{analyzer: dir, work: dir}, "-m", "x")
	if err != nil {
		t.Fatal(err)
	}
	if got.Throughput != 1000.5 || got.Requests != 3000 || got.P50 != 100 || got.P95 != 160 || got.P99 != 200 {
		t.Errorf("got %+v, want what the CSV and the report have", got)
	}
}

func TestFloorsAreHeld(t *testing.T) {
	r := &results{}
	r.most("a", 11, "%", 10)
	r.most("b", 10, "%", 10)
	r.least("c", 7999, "/s", 8000)
	r.least("d", 8000, "/s", 8000)
	r.tell("e", 1e9, "")
	r.judge(comparison{Server: "s", Model: "m", Protocol: "http", Callers: cpuCallers, Ours: run{CPU: 36}, Theirs: run{CPU: 100}})
	missed := strings.Join(r.missed(), "\n")
	for _, want := range []string{"a 11", "c 7999", "s, m, http, 16 callers: client CPU a request by perf_analyzer's 0.36"} {
		if !strings.Contains(missed, want) {
			t.Errorf("got %q, want %q in it", missed, want)
		}
	}
	if n := len(r.missed()); n != 3 {
		t.Errorf("got %d floors missed, want 3", n)
	}
	if page := r.page(); !strings.Contains(page, "| b ") || strings.Count(page, "missed") != 3 {
		t.Errorf("got a page\n%s", page)
	}
}
