package main

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shoal/bench/internal/peer"
	"shoal/internal/load"
)

// rounds of a machine that slows down: medians of the figures would mislead.
var slowing = []sampleSet{
	{shoal: {Throughput: 300, P50: 10, CPU: 3, WorkerCPU: 3}, mosec: {Throughput: 200, P50: 25, CPU: 1, WorkerCPU: 9}},
	{shoal: {Throughput: 130, P50: 40, CPU: 5, WorkerCPU: 10}, mosec: {Throughput: 100, P50: 100, CPU: 20, WorkerCPU: 10}},
	{shoal: {Throughput: 14, P50: 330, CPU: 20, WorkerCPU: 60}, mosec: {Throughput: 10, P50: 300, CPU: 40, WorkerCPU: 60}},
}

func TestFloorsAreAboutTheMedianOfTheRoundsRatios(t *testing.T) {
	tests := []struct {
		name  string
		floor floor
		want  float64
		pass  bool
	}{
		{"throughput above its floor", floor{mosec, throughput, 1.2}, 1.4, true},
		{"throughput at its floor", floor{mosec, throughput, 1.4}, 1.4, true},
		{"throughput below its floor", floor{mosec, throughput, 1.5}, 1.4, false},
		{"latency below its floor", floor{mosec, p50, 0.5}, 0.4, true},
		{"latency above its floor", floor{mosec, p50, 0.3}, 0.4, false},
		{"CPU of all processes at its floor", floor{mosec, cpu, 0.6}, 0.6, true},
		{"CPU of all processes above its floor", floor{mosec, cpu, 0.55}, 0.6, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := compare(row{loadNoop, 8, []string{shoal, mosec}, []floor{tt.floor}}, slowing)
			if v := got.Verdicts[0]; math.Abs(v.Ratio-tt.want) > 1e-9 || v.Pass != tt.pass {
				t.Errorf("got ratio %v, pass %v, want %v, %v", v.Ratio, v.Pass, tt.want, tt.pass)
			}
			if m := got.Medians[shoal]; m.Throughput != 130 || got.Medians[mosec].P50 != 100 {
				t.Errorf("got medians %v and %v, want 130 and 100", m.Throughput, got.Medians[mosec].P50)
			}
		})
	}
}

func TestMissedFloorsAreNamedWithTheirFigures(t *testing.T) {
	r := results{
		Trip: summariseTrips([]tripSample{
			{P50: 41, ServerCPU: 15, WorkerCPU: 15.5, BigP50: 60, SmallP50: 40, CopyP50: 16},
			{P50: 30, ServerCPU: 16, WorkerCPU: 15.5, BigP50: 65, SmallP50: 40, CopyP50: 16},
			{P50: 45, ServerCPU: 2, WorkerCPU: 2, BigP50: 40, SmallP50: 40, CopyP50: 16},
		}),
		Rows: []comparison{compare(row{loadNoop, 8, []string{shoal, mosec}, []floor{{mosec, throughput, 1.5}, {mosec, p50, 0.5}}}, slowing)},
	}
	want := "trip: round trip p50 41.00 us (at most 40), trip: CPU of the worker 15.50 us (at most 15), noop-c8: req/s 1.40 of mosec's (want >= 1.5)"
	if got := strings.Join(r.missed(), ", "); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if page := r.page(); strings.Count(page, "MISSED") != 3 || strings.Count(page, "pass") != 3 {
		t.Errorf("got %s, want MISSED three times and pass three times", page)
	}
}

func TestRowsAreChosenByPartsOfTheirNames(t *testing.T) {
	tests := []struct {
		words string
		rows  int
		trip  bool
	}{
		{"", len(allRows), true},
		{"trip", 0, true},
		{"mlp-c8", 1, false},
		{"triton", 4, false},
		{"trip noop", 4, true},
	}
	for _, tt := range tests {
		rows, trip, err := choose(strings.Fields(tt.words))
		if err != nil || len(rows) != tt.rows || trip != tt.trip {
			t.Errorf("%q: got %d rows, trip %v, %v, want %d, %v", tt.words, len(rows), trip, err, tt.rows, tt.trip)
		}
	}
	if _, _, err := choose([]string{"nope"}); err == nil || !strings.Contains(err.Error(), "triton-grpc-c8") || !strings.Contains(err.Error(), "trip noop-c1") {
		t.Errorf("got %v, want an error that names the rows", err)
	}
}

func TestEveryFloorIsAboutAServerOfItsRow(t *testing.T) {
	for _, r := range allRows {
		for _, f := range r.floors {
			if !strings.Contains(strings.Join(r.servers, " "), f.against) || f.against == shoal {
				t.Errorf("%s: got a floor about %s, want one of %v", r.name(), f.against, r.servers)
			}
		}
	}
}

func TestServersMustAgree(t *testing.T) {
	input := peer.Random("x", answerWidth)
	good := input.Raw()
	other := append([]byte(nil), good...)
	other[3] ^= 0x80 // the sign of the first number
	tests := []struct {
		name  string
		check func(*agreement) error
		good  bool
	}{
		{"the same numbers", func(a *agreement) error { return a.raw(good) }, true},
		{"behind JSON", func(a *agreement) error { return a.binary(append([]byte("{}"), good...)) }, true},
		{"behind no JSON", func(a *agreement) error { return a.binary(append([]byte("ab"), good...)) }, false},
		{"too few", func(a *agreement) error { return a.raw(good[4:]) }, false},
		{"too many", func(a *agreement) error { return a.raw(append([]byte{0, 0, 0, 0}, good...)) }, false},
		{"other numbers", func(a *agreement) error { return a.raw(other) }, false},
		{"no message", func(a *agreement) error { return a.grpc([]byte("{}")) }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var a agreement
			if err := a.raw(good); err != nil {
				t.Fatal(err)
			}
			if err := tt.check(&a); (err == nil) != tt.good {
				t.Errorf("got %v, want good %v", err, tt.good)
			}
		})
	}
	if err := new(agreement).raw(make([]byte, 4*answerWidth)); err == nil {
		t.Error("got no error, want one: nothing but zeros is no inference")
	}
}

func TestTripMeasuresBothSides(t *testing.T) {
	venv := fakeVenv(t)
	got, err := startTrip(t.Context(), options{work: t.TempDir(), python: venv})
	if err != nil {
		t.Fatal(err)
	}
	defer got.close()
	s, err := got.measure(50)
	if err != nil {
		t.Fatal(err)
	}
	if s.P50 <= 0 || s.P99 < s.P50 || s.ServerCPU <= 0 || s.WorkerCPU <= 0 || s.BigP50 <= 0 || s.SmallP50 <= 0 || s.CopyP50 <= 0 {
		t.Errorf("got %+v, want every figure", s)
	}
}

func TestServersOfOneLoadShareNoProcess(t *testing.T) {
	if key(mosec, loadNoop) == key(mosec, loadMLP) || key(shoal, loadNoop) != key(shoal, loadMLP) {
		t.Error("got one mosec for two models or two Shoals, want two and one")
	}
}

func TestTargetsSendWhatTheServerReads(t *testing.T) {
	f := newFleet(options{work: t.TempDir()})
	f.answers[loadNoop] = &agreement{}
	for _, name := range []string{shoal, mosec} {
		target, err := f.target(name, loadNoop, &peer.Server{HTTP: "127.0.0.1:1"})
		if _, ok := target.(*load.HTTP); err != nil || !ok {
			t.Errorf("%s: got %T, %v, want HTTP", name, target, err)
		}
	}
	f.answers[loadTritonGRPC] = &agreement{}
	target, err := f.target(triton, loadTritonGRPC, &peer.Server{GRPC: "127.0.0.1:1"})
	if _, ok := target.(*load.GRPC); err != nil || !ok {
		t.Errorf("got %T, %v, want gRPC", target, err)
	}
}

// fakeVenv returns a folder with bin/python in it: a Python that has numpy. Without
// one the test is skipped; in CI it fails.
func fakeVenv(t *testing.T) string {
	t.Helper()
	path := os.Getenv("SHOAL_TEST_PYTHON")
	if path == "" {
		path = "python3" // perhaps with what make has put into build/python
		library, err := filepath.Abs("../../build/python")
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("PYTHONPATH", library)
	}
	if exec.Command(path, "-c", "import numpy").Run() != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("CI needs a python3 with numpy")
		}
		t.Skip("no python3 with numpy; set SHOAL_TEST_PYTHON to one")
	}
	venv := t.TempDir()
	script := "#!/bin/sh\nexec " + path + " \"$@\"\n"
	if err := os.MkdirAll(filepath.Join(venv, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(venv, "bin", "python"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return venv
}
