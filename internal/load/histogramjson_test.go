package load

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

func TestHistogramComesBackFromJSONAsItWas(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var wide, empty, longest Histogram
	for range 5000 {
		wide.Record(time.Duration(math.Exp(rng.NormFloat64()*3 + 10)))
	}
	longest.Record(math.MaxInt64)
	for name, h := range map[string]*Histogram{"wide": &wide, "empty": &empty, "the longest duration": &longest} {
		data, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		var got Histogram
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(&got, h) {
			t.Errorf("%s: got %d values, mean %v, want %d, %v and the same buckets", name, got.Count(), got.Mean(), h.Count(), h.Mean())
		}
	}
}

func TestHistogramRefusesJSONThatItCannotHaveWritten(t *testing.T) {
	for name, text := range map[string]string{
		"less in the buckets than counted": `{"count":2,"min_ns":5,"max_ns":5,"buckets_ns":[[5,1]]}`,
		"more in the buckets than counted": `{"count":1,"min_ns":5,"max_ns":5,"buckets_ns":[[5,2]]}`,
		"an edge that is none":             `{"count":1,"min_ns":5001,"max_ns":5001,"buckets_ns":[[5001,1]]}`,
		"edges that fall":                  `{"count":2,"min_ns":5,"max_ns":6,"buckets_ns":[[6,1],[5,1]]}`,
		"an edge twice":                    `{"count":2,"min_ns":5,"max_ns":5,"buckets_ns":[[5,1],[5,1]]}`,
		"an edge beyond all":               `{"count":1,"min_ns":5,"max_ns":5,"buckets_ns":[[18446744073709551615,1]]}`,
		"a minimum elsewhere":              `{"count":1,"min_ns":4,"max_ns":5,"buckets_ns":[[5,1]]}`,
		"a maximum elsewhere":              `{"count":1,"min_ns":5,"max_ns":6,"buckets_ns":[[5,1]]}`,
		"a negative minimum":               `{"count":1,"min_ns":-5,"max_ns":5,"buckets_ns":[[5,1]]}`,
		"extremes of nothing":              `{"count":0,"min_ns":5,"max_ns":5,"buckets_ns":[]}`,
		"something else":                   `[1,2]`,
	} {
		var h Histogram
		if err := json.Unmarshal([]byte(text), &h); err == nil {
			t.Errorf("%s: got no error for %s, want one", name, text)
		}
	}
}

func TestBucketsHoldWhatWasRecorded(t *testing.T) {
	var h Histogram
	for _, d := range []time.Duration{3, 3, 5000, 123456789} {
		h.Record(d)
	}
	want := []struct {
		value time.Duration
		count uint64
	}{{3, 2}, {5000, 1}, {123456789, 1}}
	i := 0
	for b := range h.Buckets() {
		if i == len(want) || b.From > want[i].value || b.To <= want[i].value || b.Count != want[i].count {
			t.Fatalf("got bucket %d: %+v, want %v", i, b, want[min(i, 2)])
		}
		i++
	}
	if i != 3 {
		t.Errorf("got %d buckets, want 3", i)
	}
}

func FuzzHistogramJSON(f *testing.F) {
	f.Add([]byte(`{"count":2,"sum_ns":11,"sum_of_squares_ns2":61,"min_ns":5,"max_ns":6,"buckets_ns":[[5,1],[6,1]]}`))
	f.Add([]byte(`{"count":0,"buckets_ns":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var h Histogram
		if json.Unmarshal(data, &h) != nil {
			return
		}
		again, err := json.Marshal(&h)
		if err != nil {
			t.Fatal(err)
		}
		var second Histogram
		if err := json.Unmarshal(again, &second); err != nil || !reflect.DeepEqual(h, second) {
			t.Errorf("got %v from %s, want what was written", err, again)
		}
		h.Quantile(0.99)
	})
}
