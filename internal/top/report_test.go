package top

import (
	"errors"
	"math"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
)

var epoch = time.Date(2026, 11, 15, 6, 0, 0, 0, time.UTC)

// recorded returns the sample in the files of testdata that the suffix names,
// with metrics in the format of their ending.
func recorded(t *testing.T, dir, suffix, metrics string, at time.Time) *Sample {
	t.Helper()
	read := func(name string) []byte {
		b, err := os.ReadFile("testdata/" + dir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	s := &Sample{At: at}
	err := errors.Join(s.readStats(read("stats"+suffix+".json")), s.readIndex(read("index"+suffix+".json")))
	if metrics != "" {
		err = errors.Join(err, s.readMetrics(header(metrics), read("metrics"+suffix+metrics)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func header(metrics string) http.Header {
	kind := "text/plain; charset=utf-8"
	if metrics == ".pb" {
		kind = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
	}
	return http.Header{"Content-Type": {kind}}
}

func reportOf(rows []Row) *Report {
	return &Report{Servers: []Server{{URL: "u"}}, Models: rows, Total: total(rows)}
}

func tableText(t *testing.T, r *Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTableOfRecordedScrapes(t *testing.T) {
	for _, c := range []struct {
		name, metrics, want string
	}{
		{"with native buckets", ".pb", "shoal/table_pb.txt"},
		{"with classic buckets", ".txt", "shoal/table_txt.txt"},
		{"without metrics", "", "shoal/table_none.txt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := recorded(t, "shoal", "1", c.metrics, epoch)
			now := recorded(t, "shoal", "2", c.metrics, epoch.Add(2*time.Second))
			golden(t, "testdata/"+c.want, tableText(t, reportOf(compare("u", before, now))))
		})
	}
}

func TestTableOfTriton(t *testing.T) {
	now := recorded(t, "triton", "", ".txt", epoch.Add(time.Second))
	before := recorded(t, "triton", "", ".txt", epoch)
	before.find("simple", "1").Stats.Success -= 10
	golden(t, "testdata/triton/table.txt", tableText(t, reportOf(compare("u", before, now))))
}

// golden compares with a file, which UPDATE_GOLDEN=1 writes anew.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// aModel is a version with figures that are easy to tell apart.
func aModel(requests, fails, rows, runs float64, values ...bucket) Model {
	return Model{
		Name: "m", Version: "1", State: "READY",
		Stats:   &Stats{Success: requests, SuccessNs: requests * 2e6, Fail: fails, Inferences: rows, Executions: runs},
		Refused: new(fails), Queue: new(7.0), Busy: new(1.0), Instances: new(2.0),
		RequestTime: &Spread{values}, QueueTime: &Spread{values},
		BatchesByReason: map[string]float64{"full": runs},
	}
}

func sample(at time.Duration, models ...Model) *Sample {
	return &Sample{At: epoch.Add(at), Models: models}
}

func TestRowsAreWhatHappenedInBetween(t *testing.T) {
	low, high := bucket{0, 1, 10}, bucket{1, 2, 10}
	old := aModel(100, 5, 300, 50, low)
	for _, c := range []struct {
		name        string
		before      *Sample
		now         Model
		req, rows   float64
		fail, batch float64
		p50         *float64
	}{
		{"the counters rose", sample(0, old), aModel(200, 9, 700, 150, low, high), 50, 200, 4, 4, new(1.5)},
		{"nothing came", sample(0, old), old, 0, 0, 0, -1, nil},
		{"the model was loaded anew", sample(0, old), aModel(20, 0, 40, 20, bucket{1, 2, 4}), 10, 20, 0, 2, new(1.5)},
		{"it is seen for the first time", sample(0), aModel(20, 2, 40, 20), -1, -1, -1, -1, nil},
		{"nothing was read before", nil, aModel(20, 2, 40, 20), -1, -1, -1, -1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := compare("u", c.before, sample(2*time.Second, c.now))[0]
			got := []float64{or(r.Requests), or(r.Rows), or(r.failures()), or(r.Batch)}
			if diff := cmp.Diff([]float64{c.req, c.rows, c.fail, c.batch}, got); diff != "" {
				t.Errorf("requests/s, rows/s, failures/s, batch; -1 is unknown (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.p50, r.P50); diff != "" {
				t.Errorf("median (-want +got):\n%s", diff)
			}
			if or(r.Queue) != 7 || or(r.Busy) != 1 || or(r.Instances) != 2 {
				t.Errorf("got queue %v, busy %v of %v, want 7, 1 of 2", or(r.Queue), or(r.Busy), or(r.Instances))
			}
		})
	}
}

func or(v *float64) float64 {
	if v == nil {
		return -1
	}
	return *v
}

func TestTotalIsOverAllRequests(t *testing.T) {
	one := compare("a", sample(0, aModel(0, 0, 0, 0)), sample(time.Second, aModel(30, 1, 30, 30, bucket{0, 1, 30})))
	two := compare("b", sample(0, aModel(0, 0, 0, 0)), sample(2*time.Second, aModel(20, 0, 80, 20, bucket{2, 3, 20})))
	sum := total(append(one, two...))
	want := []float64{40, 70, 2, 70.0 / 40, 14, 2, 4}
	got := []float64{or(sum.Requests), or(sum.Rows), or(sum.failures()), or(sum.Batch), or(sum.Queue), or(sum.Busy), or(sum.Instances)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests/s, rows/s, failures/s, batch, queue, busy, instances (-want +got):\n%s", diff)
	}
	if p := or(sum.P99); p < 2.9 || p > 3 {
		t.Errorf("got p99 %v, want that of the slow server, near 3", p)
	}
	if diff := cmp.Diff(map[string]float64{"full": 40}, sum.ByReason); diff != "" {
		t.Errorf("batches by reason (-want +got):\n%s", diff)
	}
	if empty := total(nil); empty.Requests != nil || empty.Queue != nil {
		t.Errorf("of nothing: got %+v, want nothing known", empty)
	}
}

func TestQuantilesOfWireHistograms(t *testing.T) {
	u := func(n uint64) *uint64 { return &n }
	classic := &dto.Histogram{SampleCount: u(10), Bucket: []*dto.Bucket{
		{UpperBound: new(1.0), CumulativeCount: u(4)},
		{UpperBound: new(2.0), CumulativeCount: u(8)},
		{UpperBound: new(math.Inf(1)), CumulativeCount: u(10)},
	}}
	native := &dto.Histogram{
		SampleCount: u(10), Schema: new(int32(0)), ZeroThreshold: new(0.001), ZeroCount: u(1),
		PositiveSpan:  []*dto.BucketSpan{{Offset: new(int32(0)), Length: new(uint32(1))}, {Offset: new(int32(2)), Length: new(uint32(2))}},
		PositiveDelta: []int64{2, 2, -1}, // (0.5,1]: 2, (4,8]: 4, (8,16]: 3
		Bucket:        classic.Bucket,
	}
	for _, c := range []struct {
		name string
		h    *dto.Histogram
		q    float64
		want float64
	}{
		{"classic, within a bucket", classic, 0.2, 0.5},
		{"classic, at a bound", classic, 0.4, 1},
		{"classic, beyond the last bound", classic, 0.99, 2},
		{"native, near zero", native, 0.1, 0.001},
		{"native, at a bound", native, 0.3, 1},
		{"native, after a gap", native, 0.5, 6},
		{"native, the largest", native, 1, 16},
	} {
		if got := newSpread(c.h).quantile(c.q); got == nil || math.Abs(*got-c.want) > 1e-9 {
			t.Errorf("%s: got %v, want %v", c.name, or(got), c.want)
		}
	}
	if got := newSpread(&dto.Histogram{}).quantile(0.5); got != nil {
		t.Errorf("of nothing: got %v, want nothing", *got)
	}
}

func TestOrder(t *testing.T) {
	rows := func() []Row {
		return []Row{{Model: "b", Requests: new(2.0)}, {Model: "c"}, {Model: "a", Requests: new(3.0)}, {Model: "d", Requests: new(2.0)}}
	}
	for _, c := range []struct {
		name    string
		column  int
		reverse bool
		want    string
	}{
		{"by name", 0, false, "abcd"},
		{"by name, reversed", 0, true, "dcba"},
		{"the largest first, unknown last", 3, false, "abdc"},
		{"the smallest first, unknown last", 3, true, "bdac"},
	} {
		list := rows()
		order(list, &modelColumns[c.column], c.reverse)
		got := ""
		for _, r := range list {
			got += r.Model
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestFigures(t *testing.T) {
	for _, c := range []struct {
		got, want string
	}{
		{rate(nil), "-"},
		{rate(new(0.0)), "0"},
		{rate(new(0.25)), "0.2"},
		{rate(new(99.94)), "99.9"},
		{rate(new(1234.5)), "1234"},
		{duration(nil), "-"},
		{duration(new(0.00000081)), "810ns"},
		{duration(new(0.000812345)), "812µs"},
		{duration(new(0.0012449)), "1.24ms"},
		{duration(new(0.0999)), "99.9ms"},
		{duration(new(12.345)), "12.3s"},
		{duration(new(0.0)), "0s"},
		{decimal(new(3.96)), "4.0"},
		{whole(new(3.0)), "3"},
		{percent(new(0.734)), "73%"},
		{percent(nil), "-"},
		{sparkline([]float64{0, 1, 4, 8}), " \u2581\u2584\u2588"},
		{sparkline([]float64{0, 0}), "  "},
		{sparkline(nil), ""},
		{printable("a\x1b[31mb\u202ec\n"), "a\uFFFD[31mb\uFFFDc\uFFFD"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
