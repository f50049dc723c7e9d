package page

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/perf/result"
	"shoal/internal/race"
)

func write(t *testing.T, r *result.Result) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPageHasEveryChartWithItsUnits(t *testing.T) {
	text := write(t, sample{levels: 8, failing: true}.result())
	for id, units := range map[string][]string{
		"curve":           {"throughput (infer/s)", "latency (ms)"},
		"breakdown":       {"concurrency (requests under way)", "mean time of a request (ms)", "throughput (infer/s)"},
		"spectrum":        {"percentile (% of requests)", "latency (ms)"},
		"latency-time":    {"time since the start (s)", "latency (ms)"},
		"histogram-1":     {"latency (ms)", "requests (%)"},
		"histogram-8":     {"latency (ms)", "requests (%)"},
		"batch-8":         {"batch size (rows)", "runs of the model (%)"},
		"throughput-time": {"time since the start (s)", "answers (requests/s)"},
		"windows":         {"difference from the level (%)"},
	} {
		_, figure, found := strings.Cut(text, `<figure id="`+id+`-figure">`)
		figure, _, _ = strings.Cut(figure, "</figure>")
		if !found {
			t.Errorf("got no figure %s", id)
		}
		for _, unit := range units {
			if !strings.Contains(figure, ">"+unit) {
				t.Errorf("figure %s has no axis %q", id, unit)
			}
		}
	}
	for _, want := range []string{
		"Performance of a&lt;b", "shoal perf -m &#39;a&lt;b&#39; --shape &#39;x y&#39;", "A Processor", "max_batch_size 8",
		"http 503: the &lt;queue&gt; is full", "knee, at concurrency 4",
		"500.0 ±4 %", "<th scope=\"row\">p99&lt;7ms</th><td>met</td>", `<td class="missed">missed</td>`, "<td>288</td><td>1.18 %</td><td>concurrency 1</td>",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got no %q in the page", want)
		}
	}
}

// references finds what a browser would fetch.
var references = regexp.MustCompile(`(?i)(https?:)?//[a-z]|@import|\burl\(|<(link|img|iframe|object|embed|base)\b|\ssrc=`)

func TestPageRefersToNothingOutside(t *testing.T) {
	text := write(t, sample{levels: 3, open: true, failing: true}.result())
	text = regexp.MustCompile(`href="data:[^"]*"`).ReplaceAllString(text, "")
	if found := references.FindAllString(text, -1); len(found) > 0 {
		t.Errorf("got references %q, want none", found)
	}
	for _, bad := range []string{"NaN", "Inf", "ZgotmplZ"} {
		if strings.Contains(text, bad) {
			t.Errorf("got %s in the page", bad)
		}
	}
}

// TestPageOfAMillionRequestsIsSmall is criterion P12 of the specification: with
// three histograms of wide spread for each of 80 windows and ten minutes of
// timeline it is at most 600 KB.
func TestPageOfAMillionRequestsIsSmall(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector makes a million requests slow and the page no larger")
	}
	text := write(t, sample{levels: 8, windows: 10, requests: 12500, ticks: 75, open: true, failing: true}.result())
	if limit := 600_000; len(text) > limit {
		t.Errorf("got %d bytes, want at most %d", len(text), limit)
	}
	if !strings.Contains(text, `id="json"`) {
		t.Error("got no result in the page")
	}
}

// link returns what a download link holds.
func link(t *testing.T, text, id string) []byte {
	t.Helper()
	m := regexp.MustCompile(`<a id="` + id + `"[^>]* href="data:[a-z/]+;base64,([^"]*)"`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("got no link %s", id)
	}
	data, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(m[1], "&#43;", "+"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestPageHoldsTheResultAndTheCSV(t *testing.T) {
	want := sample{levels: 3}.result()
	text := write(t, want)
	z, err := gzip.NewReader(bytes.NewReader(link(t, text, "json")))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := result.Parse(data); err != nil {
		t.Fatal(err)
	}
	original, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got, had any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(original, &had); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(had, got); diff != "" {
		t.Errorf("the result in the page differs (-had +got):\n%s", diff)
	}
	if csv := string(link(t, text, "csv")); !strings.HasPrefix(csv, "Concurrency,Inferences/Second,") || strings.Count(csv, "\n") != 4 {
		t.Errorf("got CSV %q, want a heading and three levels", csv)
	}
}

func TestThinnedResultsAreSmallerAndStillResults(t *testing.T) {
	r := sample{levels: 4, open: true}.result()
	last := -1
	for i, thin := range []func(*result.Result) *result.Result{withoutWindows, withoutTimeline, withoutHistograms, func(r *result.Result) *result.Result { return r }} {
		data, err := json.Marshal(thin(r))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := result.Parse(data); err != nil {
			t.Errorf("step %d: %v", i, err)
		}
		if len(data) <= last {
			t.Errorf("step %d has %d bytes, want more than the %d of the one that leaves out more", i, len(data), last)
		}
		last = len(data)
	}
	if len(r.Levels[0].Timeline) == 0 || r.Levels[0].Windows[0].Latency.Count() == 0 {
		t.Error("thinning changed the result itself")
	}
}

func TestPageOfLittleOrNothing(t *testing.T) {
	tiny := sample{levels: 1, requests: 1, silent: true}.result()
	empty := sample{}.result()
	empty.Cut = "the server stopped answering"
	dead := sample{levels: 1}.result()
	dead.Levels[0].Merged, dead.Levels[0].Windows, dead.Levels[0].Timeline = nil, nil, nil
	bare := sample{levels: 2, silent: true}.result()
	bare.Levels[0].Timeline, bare.Levels[1].Timeline = nil, nil
	for name, r := range map[string]*result.Result{"one request": tiny, "no level": empty, "a level without answers": dead, "no timeline": bare} {
		t.Run(name, func(t *testing.T) {
			text := write(t, r)
			if r.Cut != "" && !strings.Contains(text, r.Cut) {
				t.Errorf("the page does not say that the run ended early")
			}
			for _, bad := range []string{"NaN", "Inf"} {
				if body := regexp.MustCompile(`href="data:[^"]*"`).ReplaceAllString(text, ""); strings.Contains(body, bad) {
					t.Errorf("got %s in the page", bad)
				}
			}
			if Plot(r).Width <= 0 {
				t.Error("the plot has no width")
			}
		})
	}
}

func TestKneeIsTheMostThroughputForTheLatency(t *testing.T) {
	for _, c := range []struct {
		levels int
		want   string
	}{
		{2, ""}, // too few to bend
		{4, ""}, // saturated at the last
		{8, "concurrency 4"},
	} {
		r := newRun(sample{levels: c.levels, requests: 20000}.result())
		got := ""
		if r.knee != nil {
			got = levelName(r.knee.Load)
		}
		if got != c.want {
			t.Errorf("%d levels: knee at %q, want %q", c.levels, got, c.want)
		}
	}
}

func TestPageOfACapacitySearch(t *testing.T) {
	r := sample{levels: 1, open: true}.result()
	r.Capacity = &result.Capacity{Goal: "p99<20ms", Rate: 123}
	if text := write(t, r); !strings.Contains(text, "<dt>capacity for p99&lt;20ms</dt><dd>123 requests/s</dd>") {
		t.Error("the page does not tell the capacity")
	}
}

func TestSpectrumHasBothClocksWhicheverIsThePlans(t *testing.T) {
	r := sample{levels: 1, open: true}.result()
	if c := newRun(r).spectrum(); !strings.Contains(c.Desc, "from when it was sent") {
		t.Errorf("by schedule: got %q", c.Desc)
	}
	w := r.Levels[0].Merged
	r.Plan.LatencyClock, w.Latency, w.FromSchedule = result.SendClock, w.FromSend, w.Latency
	if c := newRun(r).spectrum(); !strings.Contains(c.Desc, "from when it was due") {
		t.Errorf("by send: got %q", c.Desc)
	}
}

func TestTheLeadNamesTheLeastLoadThatIsEnough(t *testing.T) {
	r := sample{levels: 3}.result()
	for i, rows := range []int64{1000, 1990, 2000} {
		r.Levels[i].Merged.Rows, r.Levels[i].Merged.Duration = rows, time.Second
	}
	if got, want := newRun(r).lead(), "At most 2000 infer/s; from concurrency 2 on nearly as much"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q at its beginning", got, want)
	}
	r.Levels[1].Merged.Rows = 1500
	if got, want := newRun(r).lead(), "At most 2000 infer/s at concurrency 3, "; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q at its beginning", got, want)
	}
}

func TestThinningTheTimelineKeepsAStall(t *testing.T) {
	r := sample{levels: 1, ticks: 3000}.result()
	l := &r.Levels[0]
	l.Timeline[4321].Max, l.Timeline[4321].P99 = 7*time.Second, 6*time.Second
	list := newRun(r).moments(l, 50)
	if len(list) > 51 {
		t.Errorf("got %d moments, want about 50", len(list))
	}
	worst, p99, requests := time.Duration(0), time.Duration(0), int64(0)
	for _, m := range list {
		worst, p99, requests = max(worst, m.max), max(p99, m.p99), requests+m.requests
	}
	if worst != 7*time.Second || p99 != 6*time.Second {
		t.Errorf("got %v and p99 %v as the worst, want 7s and 6s", worst, p99)
	}
	var all int64
	for _, tick := range l.Timeline {
		all += tick.Requests
	}
	if requests != all {
		t.Errorf("got %d requests, want %d", requests, all)
	}
}

func TestManyBatchSizesArePutTogether(t *testing.T) {
	var sizes []uint64
	for s := uint64(1); s <= 100; s += 3 {
		sizes = append(sizes, s)
	}
	groups := groupSizes(sizes)
	names := ""
	for _, g := range groups {
		names += g.name + " "
	}
	if want := "1 2 3-4 5-8 9-16 17-32 33-64 65-128 "; names != want {
		t.Errorf("got groups %q, want %q", names, want)
	}
	for _, s := range sizes {
		in := 0
		for _, g := range groups {
			if s >= g.from && s <= g.to {
				in++
			}
		}
		if in != 1 {
			t.Errorf("size %d is in %d groups, want 1", s, in)
		}
	}
	if got := fmt.Sprint(groupSizes([]uint64{2, 5})); got != "[{1 1 1} {2 2 2} {3 3 3} {4 4 4} {5 5 5}]" {
		t.Errorf("got %s, want the sizes from 1 to 5", got)
	}
}

// FuzzPage draws whatever can be read as a result: it may be nonsense, it must
// not panic or go on forever.
func FuzzPage(f *testing.F) {
	for _, s := range []sample{{}, {levels: 1, requests: 3, ticks: 1}, {levels: 3, open: true, failing: true, requests: 3, ticks: 1}} {
		data, err := json.Marshal(s.result())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := result.Parse(data)
		if err != nil {
			return
		}
		if err := Write(io.Discard, r); err != nil {
			t.Skip(err)
		}
		Plot(r).File()
	})
}
