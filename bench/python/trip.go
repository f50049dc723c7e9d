package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"shoal/bench/internal/peer"
	"shoal/bench/internal/report"
	"shoal/internal/backend"
	"shoal/internal/backend/python"
	"shoal/internal/infer"
	"shoal/internal/load"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/tensor"
)

// Elements of the two inputs: 64 bytes, and 602,112 as of an image.
const (
	smallWidth = 16
	bigWidth   = 150_528
)

// A trip sends batches of one request to a worker from this process, so that
// nothing is measured but the way to the worker and back.
type trip struct {
	model    backend.Model
	instance backend.Instance
	worker   load.Process
	batch    infer.Batch
	small    []byte
	big      []byte
	copied   []byte // where the copy goes that the big input is compared with
}

// startTrip starts a worker.
func startTrip(ctx context.Context, o options) (_ *trip, err error) {
	dir := filepath.Join(o.work, "trip")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "model.py"), []byte(source("shoal_touch.py")), 0o644)); err != nil {
		return nil, err
	}
	cfg := &modelpb.ModelConfig{
		Name: "touch", Backend: "python", MaxBatchSize: maxBatch,
		Input:  []*modelpb.ModelInput{{Name: peer.Input, DataType: modelpb.DataType_TYPE_FP32, Dims: []int64{-1}}},
		Output: []*modelpb.ModelOutput{{Name: peer.Output, DataType: modelpb.DataType_TYPE_FP32, Dims: []int64{1}}},
	}
	model.Normalize(cfg, model.NormalizeOptions{})
	cache, err := filepath.Abs(filepath.Join(o.work, "cache"))
	if err != nil {
		return nil, err
	}
	b := python.New(python.Options{Python: filepath.Join(o.python, "bin", "python"), Environ: append(os.Environ(), oneThread...), Cache: cache})
	t := &trip{batch: infer.Batch{Rows: 1, Requests: make([]*infer.Request, 1)}}
	t.small, t.big, t.copied = make([]byte, 4*smallWidth), make([]byte, 4*bigWidth), make([]byte, 4*bigWidth)
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	probed := b.Probe(backend.Source{Model: cfg.GetName(), Version: 1, Dir: dir, Root: dir})
	defer probed.Close()
	if t.model, err = probed.Open(ctx, cfg, model.NewSignature(cfg), nil); err != nil {
		return nil, err
	}
	if t.instance, err = t.model.Start(ctx, backend.Placement{Name: "touch_0_0", Count: 1}); err != nil {
		return nil, err
	}
	children, err := load.Watch(os.Getpid()).Descendants()
	if err == nil && len(children) != 1 {
		err = fmt.Errorf("there are %d processes below this one, want the worker alone", len(children))
	}
	if err != nil {
		return nil, err
	}
	t.worker = children[0]
	return t, nil
}

func (t *trip) close() {
	if t.instance != nil {
		t.instance.Close()
	}
	if t.model != nil {
		t.model.Close()
	}
}

// send sends one request through the worker.
func (t *trip) send(data []byte) error {
	r := infer.NewRequest()
	defer r.Release()
	r.Rows = 1
	in := r.AddInput()
	in.Name, in.Type, in.Data.First = peer.Input, tensor.FP32, data
	in.Shape = append(in.Shape[:0], 1, int64(len(data)/4))
	t.batch.Requests[0] = r
	if err := t.instance.Run(&t.batch); err != nil {
		return err
	}
	if r.Err != nil {
		return r.Err
	}
	if n := len(r.Response.Outputs); n != 1 {
		return fmt.Errorf("%d outputs, want 1", n)
	}
	return nil
}

// A tripSample is one round of the round trip. Times are in microseconds.
type tripSample struct {
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
	ServerCPU float64 `json:"server_cpu_us"`
	WorkerCPU float64 `json:"worker_cpu_us"`
	BigP50    float64 `json:"big_p50_us"`   // with 602,112 bytes
	SmallP50  float64 `json:"small_p50_us"` // with 64 bytes, in turn with those
	CopyP50   float64 `json:"copy_p50_us"`  // of one copy of 602,112 bytes, in turn with those
}

func (s tripSample) String() string {
	return fmt.Sprintf("%-14s p50 %.1f us, CPU %.1f + %.1f; 602 KB %.1f - %.1f : copy %.1f = %.2f",
		tripRow, s.P50, s.ServerCPU, s.WorkerCPU, s.BigP50, s.SmallP50, s.CopyP50, s.onTop())
}

// onTop is what the big input takes more than the small one, in copies of it.
func (s tripSample) onTop() float64 { return (s.BigP50 - s.SmallP50) / s.CopyP50 }

// measure makes n small trips by themselves, for their time and CPU, and then small
// trips, copies and big trips in turn: in this order a copy finds the caches and the
// core as a trip does.
func (t *trip) measure(n int) (s tripSample, err error) {
	times := make([]time.Duration, 0, n)
	timed := func(into *[]time.Duration, act func() error) error {
		begin := time.Now()
		err := act()
		*into = append(*into, time.Since(begin))
		return err
	}
	small := func() error { return t.send(t.small) }
	for range max(n/10, 10) {
		if err := small(); err != nil {
			return s, err
		}
	}
	ours, theirs, err := t.clocks()
	if err != nil {
		return s, err
	}
	for range n {
		if err := timed(&times, small); err != nil {
			return s, err
		}
	}
	oursAfter, theirsAfter, err := t.clocks()
	if err != nil {
		return s, err
	}
	s.ServerCPU, s.WorkerCPU = micros(oursAfter-ours)/float64(n), micros(theirsAfter-theirs)/float64(n)
	s.P50, s.P99 = quantile(times, 0.5), quantile(times, 0.99)

	var smalls, copies, bigs []time.Duration
	for range max(n/4, 1) {
		err := errors.Join(
			timed(&smalls, small),
			timed(&copies, func() error { copy(t.copied, t.big); return nil }),
			timed(&bigs, func() error { return t.send(t.big) }),
		)
		if err != nil {
			return s, err
		}
	}
	s.SmallP50, s.CopyP50, s.BigP50 = quantile(smalls, 0.5), quantile(copies, 0.5), quantile(bigs, 0.5)
	return s, nil
}

// clocks returns the CPU time of this process and of the worker.
func (t *trip) clocks() (ours, theirs time.Duration, err error) {
	if ours, err = load.Watch(os.Getpid()).CPU(); err != nil {
		return 0, 0, err
	}
	theirs, err = t.worker.CPU()
	return ours, theirs, err
}

// quantile sorts times and returns one of them in microseconds.
func quantile(times []time.Duration, q float64) float64 {
	slices.Sort(times)
	return micros(times[min(int(q*float64(len(times))), len(times)-1)])
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// A tripResult is what all rounds came to.
type tripResult struct {
	Floors []tripFloor  `json:"floors"`
	Rounds []tripSample `json:"rounds"`
}

// A tripFloor is a figure of the round trip: the median of the rounds, and what it
// may be at most.
type tripFloor struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
	Limit float64 `json:"limit"`
	Pass  bool    `json:"pass"`
}

func summariseTrips(rounds []tripSample) *tripResult {
	r := &tripResult{Rounds: rounds}
	add := func(name, unit string, limit float64, of func(tripSample) float64) {
		var all []float64
		for _, s := range rounds {
			all = append(all, of(s))
		}
		m := report.Median(all)
		r.Floors = append(r.Floors, tripFloor{name, unit, m, slices.Min(all), slices.Max(all), limit, m <= limit})
	}
	add("round trip p50", "us", 40, func(s tripSample) float64 { return s.P50 })
	add("CPU of the server's side", "us", 15, func(s tripSample) float64 { return s.ServerCPU })
	add("CPU of the worker", "us", 15, func(s tripSample) float64 { return s.WorkerCPU })
	add("602 KB on top", "copies of it", 1.25, tripSample.onTop)
	return r
}
