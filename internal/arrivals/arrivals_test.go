package arrivals

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/race"
	"shoal/internal/tensor"
)

const sampleTrace = `{"format":"shoal-arrivals","version":1,"started":"2026-01-31T12:00:00Z"}
{"at_ns":2000000,"model":"a","version":"1","inputs":[{"name":"x","shape":[2,3],"bytes":24}]}
{"at_ns":1000000,"model":"a","version":"1","inputs":[{"name":"x","shape":[1,3],"bytes":12}],"more":"passed over"}

{"dropped":3}
{"at_ns":2500000,"model":"b"}
{"at_ns":3000000,"model":"a","version":"1","inputs":[{"name":"x","shape":[2,3],"bytes":24}]}
{"at_ns":4000000}
`

func TestParseReadsATraceInTheOrderOfItsTimes(t *testing.T) {
	trace, err := Parse(strings.NewReader(sampleTrace))
	if err != nil {
		t.Fatal(err)
	}
	if len(trace.Arrivals) != 5 || len(trace.Kinds) != 4 || trace.Dropped != 3 || trace.Started.IsZero() {
		t.Errorf("got %+v, want 5 arrivals of 4 kinds, 3 dropped", trace)
	}
	if got := trace.Kinds[trace.Arrivals[0].Kind].Inputs[0].Shape[0]; got != 1 || trace.Arrivals[0].At != time.Millisecond {
		t.Errorf("got a first of %d rows at %v, want 1 at 1ms", got, trace.Arrivals[0].At)
	}
	of := trace.Of("a")
	if got, want := of.Gaps(2), []time.Duration{500 * time.Microsecond, 500 * time.Microsecond, 500 * time.Microsecond}; !reflect.DeepEqual(got, want) {
		t.Errorf("model a at twice the speed: got gaps %v, want %v", got, want)
	}
	if got := trace.Models(); !reflect.DeepEqual(got, []string{"a", "b"}) {
		t.Errorf("got models %v, want a and b", got)
	}
}

func TestParseReadsPlainTimes(t *testing.T) {
	for name, text := range map[string]string{
		"seconds":            "0\n0.25\n1\n",
		"seconds since 1970": "# from a log\n1767225601.0\n1767225600.00\n\n1767225600.25\n",
		"times of day":       "2026-01-01T00:00:00Z\n2026-01-01T00:00:00.25Z\n2026-01-01T01:00:01+01:00\n",
	} {
		trace, err := Parse(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := trace.Gaps(1), []time.Duration{250 * time.Millisecond, 750 * time.Millisecond}; !reflect.DeepEqual(got, want) || trace.Arrivals[0].At != 0 {
			t.Errorf("%s: got gaps %v from %v on, want %v from 0", name, got, trace.Arrivals[0].At, want)
		}
	}
}

func TestParseSaysWhereATraceIsWrong(t *testing.T) {
	first := `{"format":"shoal-arrivals","version":1}` + "\n"
	for text, want := range map[string]string{
		"":               "no arrival",
		first:            "no arrival",
		`{"format":"x"}`: "line 1: this is not a trace",
		`{"format":"shoal-arrivals","version":2}`: "line 1: a trace of version 2",
		first + "{}":           "line 2: at_ns is missing",
		first + "5":            "line 2: ",
		first + `{"at_ns":-1}`: "line 2: at_ns is -1",
		first + `{"at_ns":1,"inputs":[{"name":"x","shape":[-1]}]}`: `line 2: input "x" has the shape [-1]`,
		first + `{"at_ns":1,"inputs":[{"shape":[1]}]}`:             "input 1 has no name",
		first + `{"at_ns":1,"inputs":[{"name":"x","bytes":-1}]}`:   "-1 bytes",
		first + `{"dropped":-1}`:                                   "dropped is -1",
		"1\nsoon\n":                                                `line 2: "soon" is neither`,
		"NaN\n":                                                    "neither",
		"1e300\n":                                                  "neither",
		"1\n{}\n":                                                  "line 2",
	} {
		if _, err := Parse(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sampleTrace))
	f.Add([]byte("0\n0.5\n2026-01-01T00:00:00Z\n"))
	f.Add([]byte("-1e9\n3155760000\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		trace, err := Parse(bytes.NewReader(data))
		if err != nil {
			return
		}
		for i, a := range trace.Arrivals {
			if a.At < 0 || a.Kind >= len(trace.Kinds) || i > 0 && a.At < trace.Arrivals[i-1].At {
				t.Fatalf("got %+v after %+v, want rising times of known kinds", a, trace.Arrivals[max(0, i-1)])
			}
		}
		var again bytes.Buffer
		if err := Write(&again, trace); err != nil {
			t.Fatal(err)
		}
		second, err := Parse(bytes.NewReader(again.Bytes()))
		if err != nil {
			t.Fatalf("%v: %s", err, &again)
		}
		var third bytes.Buffer
		if err := Write(&third, second); err != nil || third.String() != again.String() {
			t.Errorf("got\n%s, %v, want\n%s", &third, err, &again)
		}
	})
}

// request returns one that has been checked.
func request(rows int64) *infer.Request {
	r := infer.NewRequest()
	r.Inputs = append(r.Inputs, infer.Input{Name: "x", Type: tensor.FP32, Shape: tensor.Shape{rows, 3}, Data: infer.Data{First: make([]byte, 12*rows)}})
	return r
}

func signature() *model.Signature {
	return &model.Signature{Name: "m", Inputs: []model.Tensor{{Name: "x"}}}
}

func TestTapRecordsWhatArrives(t *testing.T) {
	var tap Tap
	sig := signature()
	tap.Arrived(sig, 7, request(1)) // nobody records
	var out bytes.Buffer
	rec, err := tap.Record(&out, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		tap.Arrived(sig, 7, request(int64(i%2+1)))
	}
	wide := request(1)
	wide.Inputs[0].Shape = make(tensor.Shape, sampleDims+1)
	tap.Arrived(sig, 7, wide)
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	tap.Arrived(sig, 7, request(1))
	trace, err := Parse(&out)
	if err != nil {
		t.Fatal(err)
	}
	want := []Kind{
		{"m", "7", []Input{{"x", []int64{1, 3}, 12}}},
		{"m", "7", []Input{{"x", []int64{2, 3}, 24}}},
	}
	if len(trace.Arrivals) != 100 || !reflect.DeepEqual(trace.Kinds, want) || trace.Dropped != 1 {
		t.Errorf("got %d arrivals of %+v, %d dropped, want 100 of %+v and 1", len(trace.Arrivals), trace.Kinds, trace.Dropped, want)
	}
}

func TestTapAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	var tap Tap
	sig, r := signature(), request(1)
	if got := testing.AllocsPerRun(100, func() { tap.Arrived(sig, 1, r) }); got != 0 {
		t.Errorf("off: got %v allocations, want 0", got)
	}
	stuck := &gate{open: make(chan struct{})}
	rec, err := tap.Record(stuck, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := testing.AllocsPerRun(1000, func() { tap.Arrived(sig, 1, r) }); got != 0 {
		t.Errorf("on: got %v allocations, want 0", got)
	}
	close(stuck.open)
	_ = rec.Close() // what is written does not matter here
}

// A gate is a disk that stands still until it is opened.
type gate struct {
	open chan struct{}
	bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	return g.Buffer.Write(p)
}

func TestTapDropsAndCountsWhatTheDiskIsTooSlowFor(t *testing.T) {
	var tap Tap
	slow := &gate{open: make(chan struct{})}
	rec, err := tap.Record(slow, nil)
	if err != nil {
		t.Fatal(err)
	}
	const sent = 3 * tapRoom
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range sent / 3 {
				tap.Arrived(signature(), 1, request(1))
			}
		})
	}
	wg.Wait() // none of them waited for the disk
	close(slow.open)
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	trace, err := Parse(&slow.Buffer)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(trace.Arrivals); int64(n)+trace.Dropped != sent || n < tapRoom || trace.Dropped == 0 {
		t.Errorf("got %d arrivals and %d dropped, want %d together, and at least %d arrivals", n, trace.Dropped, sent, tapRoom)
	}
}

func TestTapSaysThatATraceCannotBeWritten(t *testing.T) {
	var tap Tap
	out, in := io.Pipe()
	_ = out.CloseWithError(errors.New("disk full"))
	rec, err := tap.Record(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-rec.Broken()
	if err := rec.Close(); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("got %v, want why", err)
	}
}

func TestTapBoundsItsListeners(t *testing.T) {
	var tap Tap
	var list []*Recording
	for i := range maxRecordings + 1 {
		rec, err := tap.Record(io.Discard, nil)
		if (err != nil) != (i == maxRecordings) {
			t.Fatalf("recording %d: got %v", i+1, err)
		}
		if err == nil {
			list = append(list, rec)
		}
	}
	for _, rec := range list {
		if err := rec.Close(); err != nil {
			t.Error(err)
		}
	}
	if tap.recordings.Load() != nil {
		t.Error("got recordings after all were closed, want none")
	}
}
