package usermetric

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func counter(act Act, v float64) Op {
	return Op{Owner: "m", Act: act, Family: "seen", Kind: Counter, Help: "How many", Labels: map[string]string{"a": "b"}, Value: v}
}

func must(t *testing.T, r *Registry, ops ...Op) {
	t.Helper()
	for _, op := range ops {
		if _, err := r.Apply(op); err != nil {
			t.Fatalf("%s %s: %v", op.Act, op.Family, err)
		}
	}
}

func TestValuesAreCountedByFamilyAndLabels(t *testing.T) {
	var r Registry
	gauge := Op{Owner: "m", Family: "level", Kind: Gauge, Act: Set, Value: 2.5}
	down := gauge
	down.Act, down.Value = Increment, -1
	histogram := Op{Owner: "m", Family: "size", Kind: Histogram, Buckets: []float64{0.5, 1, 10}}
	observe := func(v float64) Op { h := histogram; h.Act, h.Value = Observe, v; return h }
	other := counter(Declare, 0)
	other.Labels = nil
	must(t, &r, counter(Increment, 2), counter(Increment, 0.5), other, gauge, down, observe(0.5), observe(0.7), observe(100))
	want := []Family{
		{Name: "level", Kind: Gauge, Metrics: []Metric{{Value: 1.5}}},
		{Name: "seen", Help: "How many", Kind: Counter, Metrics: []Metric{{}, {Labels: map[string]string{"a": "b"}, Value: 2.5}}},
		{Name: "size", Kind: Histogram, Metrics: []Metric{{Value: 101.2, Count: 3, Buckets: map[float64]uint64{0.5: 1, 1: 2, 10: 2}}}},
	}
	if diff := cmp.Diff(want, r.Families()); diff != "" {
		t.Errorf("families (-want +got):\n%s", diff)
	}
	read := counter(Value, 0)
	if v, err := r.Apply(read); v != 2.5 || err != nil {
		t.Errorf("value: got %v, %v, want 2.5", v, err)
	}
}

func TestWrongOperationsAreRefused(t *testing.T) {
	histogram := Op{Act: Declare, Family: "size", Kind: Histogram, Buckets: []float64{1}}
	for _, c := range []struct {
		name string
		op   func(*Op)
		want string
	}{
		{"a counter goes down", func(op *Op) { op.Value = -1 }, "can only be incremented monotonically"},
		{"a counter is set", func(op *Op) { op.Act = Set }, "set is not for a counter"},
		{"a counter is observed", func(op *Op) { op.Act = Observe }, "observe is not for a counter"},
		{"another kind", func(op *Op) { op.Kind = Gauge }, "is a counter already and cannot be a gauge too"},
		{"an unknown kind", func(op *Op) { op.Kind = "meter" }, `kind is "meter"`},
		{"a bad name", func(op *Op) { op.Family = "bad name" }, "is not a metric's name"},
		{"no name", func(op *Op) { op.Family = "" }, "is not a metric's name"},
		{"a name of the server's", func(op *Op) { op.Family = "nv_inference_count" }, "the server's own"},
		{"a bad label", func(op *Op) { op.Labels = map[string]string{"b c": ""} }, "is not a label's name"},
		{"a private label", func(op *Op) { op.Labels = map[string]string{"__x": ""} }, "is not a label's name"},
		{"a histogram's value", func(op *Op) { *op = histogram; op.Act = Value }, "value is not for a histogram"},
		{"no buckets", func(op *Op) { *op = histogram; op.Buckets = nil }, "has no buckets"},
		{"buckets that do not ascend", func(op *Op) { *op = histogram; op.Buckets = []float64{1, 1} }, "do not ascend"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r Registry
			must(t, &r, counter(Increment, 1))
			op := counter(Increment, 1)
			c.op(&op)
			_, err := r.Apply(op)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one with %q", err, c.want)
			}
			if got := r.Families()[0].Metrics[0].Value; got != 1 {
				t.Errorf("the counter is %v after it, want 1", got)
			}
		})
	}
}

func TestDropForgetsWhatNobodyElseCounts(t *testing.T) {
	var r Registry
	shared := counter(Increment, 1)
	shared.Owner = "other"
	alone := counter(Increment, 1)
	alone.Family = "alone"
	must(t, &r, counter(Increment, 1), shared, alone)
	r.Drop("m")
	got := r.Families()
	if len(got) != 1 || got[0].Name != "seen" || got[0].Metrics[0].Value != 2 {
		t.Errorf("after Drop(m): got %v, want seen with 2", got)
	}
	r.Drop("other")
	if got := r.Families(); len(got) != 0 || r.count != 0 {
		t.Errorf("after Drop(other): got %v and a count of %d, want nothing", got, r.count)
	}
}

func TestThereIsABoundOnMetrics(t *testing.T) {
	var r Registry
	op := counter(Increment, 1)
	for range maxMetrics {
		op.Labels = map[string]string{"a": op.Labels["a"] + "x"}
		if len(op.Labels["a"]) > 200 { // short labels do for the test
			op.Family += "x"
			op.Labels = map[string]string{"a": "x"}
		}
		must(t, &r, op)
	}
	op.Labels = map[string]string{"one": "more"}
	if _, err := r.Apply(op); err == nil || !strings.Contains(err.Error(), "more are not kept") {
		t.Errorf("metric %d: got %v, want it refused", maxMetrics+1, err)
	}
}

func TestManyMayCountAtOnce(t *testing.T) {
	var r Registry
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				_, _ = r.Apply(counter(Increment, 1))
				_ = r.Families()
			}
		})
	}
	wg.Wait()
	if got := r.Families()[0].Metrics[0].Value; got != 8000 {
		t.Errorf("got %v, want 8000", got)
	}
}

func TestAFamilyIsThereBeforeItsMetrics(t *testing.T) {
	var r Registry
	announce := Op{Owner: "m", Act: Announce, Family: "seen", Kind: Counter, Help: "first"}
	apply := func(op Op) error {
		t.Helper()
		_, err := r.Apply(op)
		return err
	}
	if err := apply(announce); err != nil {
		t.Fatal(err)
	}
	other := announce
	other.Kind = Gauge
	if err := apply(other); err == nil {
		t.Error("a family that is a counter became a gauge too, want an error")
	}
	again := announce
	again.Owner, again.Help = "n", "second"
	if err := apply(again); err != nil {
		t.Fatal(err)
	}
	again.Act = Declare
	if err := apply(again); err != nil {
		t.Fatal(err)
	}
	if got := r.Families(); len(got) != 1 || got[0].Help != "first" || len(got[0].Metrics) != 1 {
		t.Errorf("got %+v, want one family with its first help and one metric", got)
	}
	r.Drop("n")
	if err := apply(other); err == nil {
		t.Error("a family was forgotten with one of its two owners")
	}
	r.Drop("m")
	if err := apply(other); err != nil {
		t.Errorf("a family whose owners are gone is still there: %v", err)
	}
}

func TestAHistogramMayHaveNoBuckets(t *testing.T) {
	var r Registry
	op := Op{Owner: "m", Act: Declare, Family: "sizes", Kind: Histogram, Buckets: []float64{}}
	if _, err := r.Apply(op); err != nil {
		t.Fatal(err)
	}
	op.Act, op.Value = Observe, 3
	if sum, err := r.Apply(op); err != nil || sum != 3 {
		t.Errorf("got sum %v, error %v, want 3", sum, err)
	}
	op.Buckets = nil
	if _, err := r.Apply(op); err == nil {
		t.Error("a histogram without a list of buckets was taken")
	}
}

func TestAFamilyGoesWithTheLastWhoAnnouncedIt(t *testing.T) {
	var r Registry
	other := counter(Declare, 0)
	other.Labels = map[string]string{"a": "c"}
	forget := other
	forget.Act = Forget
	must(t, &r, counter(Announce, 0), counter(Declare, 0), counter(Increment, 2)) // the first
	must(t, &r, counter(Announce, 0), counter(Declare, 0), other)                 // the second
	must(t, &r, forget, counter(Forget, 0), counter(Leave, 0))                    // the second goes
	want := []Family{{Name: "seen", Help: "How many", Kind: Counter, Metrics: []Metric{{Labels: map[string]string{"a": "b"}, Value: 2}}}}
	if diff := cmp.Diff(want, r.Families()); diff != "" {
		t.Errorf("after the second has gone (-want +got):\n%s", diff)
	}
	must(t, &r, counter(Leave, 0), counter(Forget, 0), counter(Leave, 0)) // the first, and one who never came
	if got := r.Families(); len(got) > 0 || r.count != 0 {
		t.Errorf("got %v and %d metrics, want nothing left", got, r.count)
	}
}

func TestWhatADeadWorkerCountedStaysUntilItsModelIsUnloaded(t *testing.T) {
	var r Registry
	must(t, &r, counter(Announce, 0), counter(Declare, 0), counter(Increment, 2)) // it dies
	must(t, &r, counter(Announce, 0), counter(Declare, 0), counter(Forget, 0), counter(Leave, 0))
	if v, err := r.Apply(counter(Value, 0)); v != 2 || err != nil {
		t.Errorf("got %v and %v, want 2", v, err)
	}
	r.Drop("m")
	if got := r.Families(); len(got) > 0 || r.count != 0 {
		t.Errorf("got %v and %d metrics, want nothing left", got, r.count)
	}
}
