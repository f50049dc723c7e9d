package engine

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/backend"
	"shoal/internal/backend/backendtest"
	"shoal/internal/infer"
	"shoal/internal/sched"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

const fakeModel = `
backend: "fake"
max_batch_size: 8
input { name: "IN" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ 2 ] }
instance_group { kind: KIND_CPU count: 1 }
`

// fakeVersion serves a model of the fake backend, from a repository that was
// written outside the bubble, and returns its version.
func fakeVersion(t *testing.T, dir string, fake *backendtest.Fake) *Version {
	t.Helper()
	e, err := Start(t.Context(), Options{
		Repositories: []string{dir}, LoadThreads: 1, ComputeTimes: true,
		Backends: []backend.Backend{fake}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	v, err := e.find("m", 1)
	if err != nil {
		t.Fatal(err, e.Failed())
	}
	return v
}

func fakeRepo(t *testing.T, more string) string {
	t.Helper()
	return repo(t, map[string]string{"m/config.pbtxt": fakeModel + more, "m/1/": ""})
}

// ask sends a request of so many rows and returns its error.
func ask(ctx context.Context, v *Version, rows int) error {
	r := infer.NewRequest()
	defer r.Release()
	r.Inputs = append(r.Inputs, in("IN", tensor.FP32, tensor.Shape{int64(rows), 2}, strings.Repeat(eightBytes, rows)))
	return v.Infer(ctx, r)
}

// asks sends requests side by side, each when the one before waits or runs, and
// returns what became of them.
func asks(ctx context.Context, v *Version, rows ...int) <-chan error {
	errs := make(chan error, len(rows))
	for _, n := range rows {
		go func() { errs <- ask(ctx, v, n) }()
		synctest.Wait()
	}
	return errs
}

// counts are the counters of Statistics that tests compare.
type counts struct {
	Success, Fail, Queue, Compute uint64
	Inferences, Executions        uint64
	Rejected, Canceled, Backend   uint64
	Other, Refused                uint64
	Pending, Busy                 int
}

func countsOf(s Statistics) counts {
	return counts{
		Success: s.Success.Count, Fail: s.Fail.Count, Queue: s.Queue.Count, Compute: s.ComputeInfer.Count,
		Inferences: s.InferenceCount, Executions: s.ExecutionCount,
		Rejected: s.Failures["REJECTED"], Canceled: s.Failures["CANCELED"], Backend: s.Failures["BACKEND"], Other: s.Failures["OTHER"],
		Refused: s.Refused, Pending: int(s.Pending), Busy: s.Busy,
	}
}

func checkCounts(t *testing.T, v *Version, want counts) Statistics {
	t.Helper()
	s := v.snapshot()
	if diff := cmp.Diff(want, countsOf(s)); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
	return s
}

func TestStatisticsOfBatchesAreSharedByTheirRequests(t *testing.T) {
	dir := fakeRepo(t, `dynamic_batching { }`)
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		// The first run takes 10 ms, the second 20; the inputs are ready at once.
		takes := []time.Duration{10 * ms, 20 * ms}
		fake := &backendtest.Fake{}
		fake.OnRun = func(*infer.Batch) error { time.Sleep(takes[len(fake.Sizes())-1]); return nil }
		v := fakeVersion(t, dir, fake)
		begin := time.Now()
		errs := asks(t.Context(), v, 2, 1, 2, 3)
		checkCounts(t, v, counts{Pending: 3, Busy: 1})
		for range 4 {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		s := checkCounts(t, v, counts{Success: 4, Queue: 4, Compute: 4, Inferences: 8, Executions: 2})
		d := func(n int, took time.Duration) Duration { return Duration{uint64(n), uint64(took)} }
		want := []BatchStatistics{
			{Size: 2, ComputeInput: d(1, 0), ComputeInfer: d(1, 10*ms), ComputeOutput: d(1, 0)},
			{Size: 6, ComputeInput: d(1, 0), ComputeInfer: d(1, 20*ms), ComputeOutput: d(1, 0)},
		}
		if diff := cmp.Diff(want, s.Batches); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
		if want := d(4, 3*10*ms); s.Queue != want {
			t.Errorf("got queue %v, want %v: three waited for the first run", s.Queue, want)
		}
		if want := d(4, 10*ms+3*20*ms); s.ComputeInfer != want {
			t.Errorf("got compute_infer %v, want %v: a run counts for each of its requests", s.ComputeInfer, want)
		}
		if want := d(4, 10*ms+3*30*ms); s.Success != want {
			t.Errorf("got success %v, want %v", s.Success, want)
		}
		if got := s.LastInference; got != uint64(begin.Add(30*ms).UnixMilli()) {
			t.Errorf("got last inference %d, want the end of the second run", got)
		}
		checkSpread(t, &s)
	})
}

// checkSpread holds the distributions of the test above against what happened.
func checkSpread(t *testing.T, s *Statistics) {
	t.Helper()
	bounds := []float64{0.005, 0.01, 0.025, 0.05}
	if diff := cmp.Diff([]uint64{0, 1, 1, 4}, s.RequestTime.Cumulative(bounds)); diff != "" {
		t.Errorf("requests by time (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]uint64{1, 4, 4, 4}, s.QueueTime.Cumulative(bounds)); diff != "" {
		t.Errorf("requests by queue time (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]uint64{0, 1, 1, 2}, s.BatchRows.Cumulative([]float64{1, 2, 4, 8})); diff != "" || s.BatchRows.Sum != 8 {
		t.Errorf("batches by rows, of %v rows in all (-want +got):\n%s", s.BatchRows.Sum, diff)
	}
	if diff := cmp.Diff([]uint64{0, 1, 4, 4}, s.InferTime.Cumulative(bounds)); diff != "" {
		t.Errorf("requests by compute time (-want +got):\n%s", diff)
	}
	if want := [infer.ReasonCount]uint64{infer.ReasonIdle: 2}; s.Formed != want {
		t.Errorf("got batches by reason %v, want %v", s.Formed, want)
	}
	if s.Instances != 1 {
		t.Errorf("got %d instances, want 1", s.Instances)
	}
}

func TestStatisticsOfFailures(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name   string
		config string
		run    func(b *infer.Batch) error
		rows   []int
		want   counts
		sizes  []int // of the batches that count as executions
	}{
		{
			"an execution that fails is none", "", func(*infer.Batch) error { return broken },
			[]int{2},
			counts{Fail: 1, Backend: 1},
			nil,
		},
		{
			"a batch that fails, fails all its requests", "dynamic_batching { }", func(b *infer.Batch) error {
				if len(b.Requests) > 1 {
					return broken
				}
				return nil
			},
			[]int{1, 2, 3},
			counts{Success: 1, Queue: 1, Compute: 1, Inferences: 1, Executions: 1, Fail: 2, Backend: 2},
			[]int{1},
		},
		{
			"a request at fault fails alone", "dynamic_batching { }", func(b *infer.Batch) error {
				if len(b.Requests) > 1 {
					b.Requests[0].Err = broken
				}
				return nil
			},
			[]int{1, 2, 3},
			counts{Success: 2, Queue: 2, Compute: 2, Inferences: 4, Executions: 2, Fail: 1, Backend: 1},
			[]int{1, 5},
		},
		{
			"an execution whose only answer cannot be made counts", "", func(b *infer.Batch) error { b.Requests[0].Err = broken; return nil },
			[]int{2},
			counts{Executions: 1, Fail: 1, Backend: 1},
			[]int{2},
		},
		{
			"a panic is an execution that fails", "", func(*infer.Batch) error { panic("oh") },
			[]int{1},
			counts{Fail: 1, Backend: 1},
			nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := fakeRepo(t, c.config)
			synctest.Test(t, func(t *testing.T) {
				v := fakeVersion(t, dir, &backendtest.Fake{OnRun: func(b *infer.Batch) error {
					time.Sleep(time.Millisecond)
					return c.run(b)
				}})
				errs := asks(t.Context(), v, c.rows...)
				for range c.rows {
					<-errs // who failed is in the counters
				}
				s := checkCounts(t, v, c.want)
				var sizes []int
				for _, b := range s.Batches {
					sizes = append(sizes, b.Size)
				}
				if diff := cmp.Diff(c.sizes, sizes); diff != "" {
					t.Errorf("sizes in batch_stats (-want +got):\n%s", diff)
				}
				if (s.LastInference == 0) != (c.want.Executions == 0) {
					t.Errorf("got last inference %d after %d executions", s.LastInference, c.want.Executions)
				}
			})
		})
	}
}

func TestACancelledRequestIsAFailureAndNoLongerPending(t *testing.T) {
	for _, config := range []string{"", "dynamic_batching { }"} {
		dir := fakeRepo(t, config)
		synctest.Test(t, func(t *testing.T) {
			v := fakeVersion(t, dir, &backendtest.Fake{OnRun: func(*infer.Batch) error { time.Sleep(time.Second); return nil }})
			first := asks(t.Context(), v, 1)
			ctx, cancel := context.WithCancel(t.Context())
			late, stop := context.WithTimeout(t.Context(), time.Millisecond)
			defer stop()
			second, third := asks(ctx, v, 1), asks(late, v, 1)
			cancel()
			if err := <-second; status.CodeOf(err) != status.Cancelled {
				t.Errorf("got %v, want it cancelled", err)
			}
			if err := <-third; status.CodeOf(err) != status.DeadlineExceeded {
				t.Errorf("got %v, want its deadline passed", err)
			}
			checkCounts(t, v, counts{Fail: 2, Canceled: 2, Busy: 1})
			if err := <-first; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestARequestThatTimesOutIsRejected(t *testing.T) {
	dir := fakeRepo(t, `dynamic_batching { default_queue_policy { default_timeout_microseconds: 1000 } }`)
	running, end := make(chan struct{}), make(chan struct{})
	v := fakeVersion(t, dir, &backendtest.Fake{OnRun: func(*infer.Batch) error { close(running); <-end; return nil }})
	first := make(chan error, 1)
	go func() { first <- ask(t.Context(), v, 1) }()
	<-running
	if err := ask(t.Context(), v, 1); !errors.Is(err, sched.ErrTimeout) {
		t.Errorf("got %v, want the queue's time over", err)
	}
	s := checkCounts(t, v, counts{Fail: 1, Rejected: 1, Busy: 1})
	if s.Fail.Ns < uint64(time.Millisecond) {
		t.Errorf("got %d ns until the failure, want 1 ms at least", s.Fail.Ns)
	}
	close(end)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func TestARefusedRequestIsCountedApart(t *testing.T) {
	dir := fakeRepo(t, `dynamic_batching { default_queue_policy { max_queue_size: 1 } }`)
	synctest.Test(t, func(t *testing.T) {
		v := fakeVersion(t, dir, &backendtest.Fake{OnRun: func(*infer.Batch) error { time.Sleep(time.Second); return nil }})
		errs := asks(t.Context(), v, 1, 1)
		if err := ask(t.Context(), v, 1); status.CodeOf(err) != status.Unavailable {
			t.Errorf("got %v, want it refused", err)
		}
		checkCounts(t, v, counts{Refused: 1, Pending: 1, Busy: 1})
		<-errs
		<-errs
		checkCounts(t, v, counts{Refused: 1, Success: 2, Queue: 2, Compute: 2, Inferences: 2, Executions: 2})
	})
}

func TestNothingIsLostUnderLoad(t *testing.T) {
	dir := fakeRepo(t, `dynamic_batching { }`)
	v := fakeVersion(t, dir, &backendtest.Fake{})
	const callers, each = 16, 200
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				if err := ask(t.Context(), v, 1+(i+j)%2); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s := v.snapshot()
	const n = callers * each
	want := counts{Success: n, Queue: n, Compute: n, Inferences: n + n/2, Executions: s.BatchRows.Count()}
	checkCounts(t, v, want)
	rows := 0
	for _, b := range s.Batches {
		rows += b.Size * int(b.ComputeInfer.Count)
	}
	if rows != n+n/2 || s.BatchRows.Sum != n+n/2 || s.InferTime.Count() != n {
		t.Errorf("got %d rows in batch_stats, %v formed and %d compute times, want %d, the same and %d", rows, s.BatchRows.Sum, s.InferTime.Count(), n+n/2, n)
	}
}

func TestBatchTableTellsSizesApart(t *testing.T) {
	var table batchTable
	sizes := []int{0, 1, 2, 3, 4, 7, 8, 255, 256, 257, 100_000}
	for i, size := range sizes {
		for range i + 1 {
			table.at(size).add(1, 2, 3)
		}
	}
	list, executions := table.list()
	for i, b := range list {
		n := uint64(i + 1)
		if want := (BatchStatistics{Size: sizes[i], ComputeInput: Duration{n, n}, ComputeInfer: Duration{n, 2 * n}, ComputeOutput: Duration{n, 3 * n}}); b != want {
			t.Errorf("got %+v, want %+v", b, want)
		}
	}
	if len(list) != len(sizes) || executions != 66 {
		t.Errorf("got %d sizes and %d executions, want %d and 66", len(list), executions, len(sizes))
	}
}

func TestMetricSettingsOfAModelAreChecked(t *testing.T) {
	control := func(family, buckets string) string {
		return ` metric_control { metric_identifier { family: "` + family + `" } histogram_options { buckets: [ ` + buckets + ` ] } } `
	}
	for _, c := range []struct{ name, config, want string }{
		{"buckets that fall", "model_metrics {" + control(FamilyFirstResponse, "1, 2, 2") + "}", "model_metrics.metric_control[0].histogram_options.buckets of 'm' must rise, got 2 after 2"},
		{"buckets without end", "model_metrics {" + control(FamilyQueueDuration, "1, inf") + "}", "must be finite, got +Inf"},
		{"a tag that is no label", `metric_tags { key: "a-b" value: "x" }`, `model 'm': metric_tags has the key "a-b", which becomes the label '_a-b'`},
		{"a reserved label", `metric_tags { key: "_a" value: "x" }`, `has the key "_a"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := Start(t.Context(), Options{
				Repositories: []string{fakeRepo(t, c.config)},
				Backends:     []backend.Backend{&backendtest.Fake{}}, Log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Failed(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	v := fakeVersion(t, fakeRepo(t, "model_metrics {"+control(FamilyFirstResponse, "-1, 0, 1, 2.5")+control(FamilyBatchRows, "3, 6")+"}"), &backendtest.Fake{})
	s := v.snapshot()
	if diff := cmp.Diff([]float64{-1, 0, 1, 2.5}, s.FirstResponse); diff != "" {
		t.Errorf("first response buckets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]float64{3, 6}, s.BatchRows.Layout.Bounds()); diff != "" {
		t.Errorf("batch buckets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(defaultBuckets[FamilyQueueDuration], s.QueueTime.Layout.Bounds()); diff != "" {
		t.Errorf("queue buckets (-want +got):\n%s", diff)
	}
}
