package metrics

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/engine"
	counted "shoal/internal/histogram"
)

// counting is a source whose one version's requests are added by the test.
type counting struct {
	times  *counted.Histogram
	loaded time.Time
}

func (c *counting) Statistics(string, int64) ([]engine.Statistics, error) {
	s := idle("m", 1)
	s.Loaded = c.loaded
	s.RequestTime = c.times.Snapshot(0)
	return []engine.Statistics{s}, nil
}

func TestSummariesAreOfTheLastMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &counting{times: counted.New(durations)}
		m := Start(Options{Settings: Settings{Summaries: true, Quantiles: []float64{0.5}}, Log: slog.New(slog.DiscardHandler)}, src)
		defer m.Close()
		check := func(when, median, count string) {
			t.Helper()
			synctest.Wait()
			got := scrape(t, m, "nv_inference_request_summary_us")
			if diff := cmp.Diff([]string{
				`nv_inference_request_summary_us{model="m",version="1",quantile="0.5"} ` + median,
				`nv_inference_request_summary_us_sum{model="m",version="1"} 0`,
				`nv_inference_request_summary_us_count{model="m",version="1"} ` + count,
			}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		check("before any request", "NaN", "0")
		src.times.Add(0.0000009, 10)
		check("at once", "1", "10")
		time.Sleep(59 * time.Second)
		check("after 59 s", "1", "10")
		time.Sleep(14 * time.Second)
		check("after 73 s", "NaN", "10")
		src.times.Add(0.0000009, 3)
		check("with new ones", "1", "13")
		*src = counting{times: counted.New(durations), loaded: time.Now()}
		src.times.Add(0.0000009, 2)
		check("of the model loaded anew", "1", "2")
	})
}

func TestMachineGaugesAreReadAtTheInterval(t *testing.T) {
	states := []machineState{{busy: 10, total: 20, memory: 100, memused: 30}, {busy: 13, total: 24, memory: 100, memused: 40}}
	i := 0
	c := startCPU(func() (machineState, error) {
		if i == len(states) {
			return machineState{}, errors.New("gone")
		}
		i++
		return states[i-1], nil
	})
	for _, step := range []struct {
		when           string
		use, mem, used float64
	}{
		{"at first", 0, 100, 30},
		{"after a read", 0.75, 100, 40},
		{"after a read that failed", 0.75, 100, 40},
	} {
		if c.use != step.use || c.last.memory != step.mem || c.last.memused != step.used {
			t.Errorf("%s: got %v, %v of %v, want %v, %v of %v", step.when, c.use, c.last.memused, c.last.memory, step.use, step.used, step.mem)
		}
		c.read()
	}
	if startCPU(func() (machineState, error) { return machineState{}, errors.ErrUnsupported }) != nil {
		t.Error("got a collector, want none where the system does not tell")
	}
	if got := (machineState{busy: 5, total: 5}).use(machineState{busy: 5, total: 5}); got != 0 {
		t.Errorf("in no time: got %v, want 0", got)
	}
}

func TestMachineGaugesAreAmongTheMetricsIfAllowed(t *testing.T) {
	if newCPU() == nil {
		t.Skip("this system does not tell")
	}
	for _, on := range []bool{true, false} {
		m := Start(Options{CPU: on, Interval: time.Hour, Log: slog.New(slog.DiscardHandler)}, &fixed{})
		got := scrape(t, m, "nv_cpu_")
		m.Close()
		names := []string{}
		for _, line := range got {
			names = append(names, strings.Fields(line)[0])
		}
		want := []string{}
		if on {
			want = []string{"nv_cpu_memory_total_bytes", "nv_cpu_memory_used_bytes", "nv_cpu_utilization"}
		}
		if !slices.Equal(names, want) {
			t.Errorf("allowed %v: got %v, want %v", on, names, want)
		}
	}
}

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		name string
		list []string
		want Settings
		err  string
	}{
		{"none", nil, Settings{Quantiles: defaultQuantiles}, ""},
		{"all", []string{"counter_latencies=false", "histogram_latencies=true", "summary_latencies=true", "summary_quantiles=0.1:0.0.1,1:0"}, Settings{true, true, true, []float64{0.1, 1}}, ""},
		{"an empty group, as Triton writes it", []string{",summary_latencies=true"}, Settings{Summaries: true, Quantiles: defaultQuantiles}, ""},
		{"the last one counts", []string{"summary_latencies=true", "summary_latencies=false"}, Settings{Quantiles: defaultQuantiles}, ""},
		{"no value", []string{"summary_latencies"}, Settings{}, `"summary_latencies" has no value, want name=value`},
		{"no such setting", []string{"gauge=4"}, Settings{}, `"gauge=4": there are counter_latencies, `},
		{"not a truth", []string{"histogram_latencies=1"}, Settings{}, "want true or false"},
		{"a quantile beyond one", []string{"summary_quantiles=50:1"}, Settings{}, `"50:1" is not quantile:error`},
		{"a quantile that is no number", []string{"summary_quantiles=NaN:1"}, Settings{}, `"NaN:1" is not quantile:error`},
		{"a quantile without error", []string{"summary_quantiles=0.5"}, Settings{}, `"0.5" is not quantile:error`},
		{"every fault is told", []string{"a=true", "b"}, Settings{}, `"b" has no value`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseSettings(c.list)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}
