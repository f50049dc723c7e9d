// Command repository measures Shoal with many models: how long 200 take to
// load and what memory each costs, with a real tritonserver beside it, and what
// 2,000 idle ones cost: the index, the metrics, a poll of the unchanged
// repository, and a request to one of them. See bench/README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"shoal/bench/internal/measure"
	"shoal/bench/internal/peer"
	"shoal/bench/internal/report"
)

type options struct {
	*report.Command
	shoal, work, triton, backends string
	loaded, idle                  int
	asks                          int
	rounds                        int
	duration, polls, settle       time.Duration
}

func main() {
	o := options{Command: report.NewCommand("repository")}
	flag.StringVar(&o.shoal, "shoal", "build/shoal", "Shoal's binary")
	flag.StringVar(&o.work, "work", "build/bench/repository", "folder for models and logs")
	flag.StringVar(&o.triton, "tritonserver", "", "a tritonserver to compare with; needs --backends")
	flag.StringVar(&o.backends, "backends", "", "its folder of backends, with onnxruntime/libtriton_onnxruntime.so")
	flag.IntVar(&o.loaded, "loaded", 200, "models of 1 MB to load")
	flag.IntVar(&o.idle, "idle", 2000, "small models that are idle")
	flag.DurationVar(&o.settle, "settle", 5*time.Second, "idle time after the start of the server with idle models")
	flag.IntVar(&o.asks, "asks", 500, "requests for the index and for the metrics")
	flag.IntVar(&o.rounds, "rounds", 9, "rounds of load on one of one and on one of many models, in turn")
	flag.DurationVar(&o.duration, "duration", time.Second, "load in one round")
	flag.DurationVar(&o.polls, "polls", 15*time.Second, "how long the server polls the repository every second")
	o.Main(func(ctx context.Context) ([]string, error) { return bench(ctx, o) })
}

// bench measures and returns the floors that were missed.
func bench(ctx context.Context, o options) (missed []string, err error) {
	r := results{Facts: report.Gather(), Loaded: o.loaded, Idle: o.idle, Rounds: o.rounds}
	if err := r.measureLoading(ctx, o); err != nil {
		return nil, err
	}
	if err := r.measureIdle(ctx, o); err != nil {
		return nil, err
	}
	return r.missed(), o.Publish(os.Stdout, r, r.table(), r.page())
}

// megabyte is a model with 262,144 weights.
func megabyte() peer.Model { return peer.Dense("megabyte", 256, 512, 256) }

// copies returns n models that are the same but for their names.
func copies(m peer.Model, n int) []peer.Model {
	list := make([]peer.Model, n)
	for i := range list {
		list[i] = m.As(fmt.Sprintf("%s_%04d", m.Name, i), 1, "")
	}
	return list
}

// measureLoading loads one and many models with each server.
func (r *results) measureLoading(ctx context.Context, o options) error {
	servers := []func(work string, models ...peer.Model) (peer.Command, error){
		func(work string, models ...peer.Model) (peer.Command, error) {
			return peer.Shoal(o.shoal, work, models...)
		},
	}
	if o.triton != "" {
		servers = append(servers, func(work string, models ...peer.Model) (peer.Command, error) {
			return peer.TritonONNX(o.triton, o.backends, work, models...)
		})
	}
	for i, server := range servers {
		one, err := r.start(ctx, server, filepath.Join(o.work, fmt.Sprint("one", i)), 1)
		if err != nil {
			return err
		}
		many, err := r.start(ctx, server, filepath.Join(o.work, fmt.Sprint("many", i)), o.loaded)
		if err != nil {
			return err
		}
		many.PerModelMB = (many.RSSMB - one.RSSMB) / float64(o.loaded-1)
		r.Loads = append(r.Loads, many)
		fmt.Fprintf(os.Stderr, "%s: %d models in %.0f ms, %.2f MB each\n", many.Server, o.loaded, many.ReadyMS, many.PerModelMB)
	}
	return nil
}

// start starts a server with n models and reads what that took.
func (r *results) start(ctx context.Context, server func(string, ...peer.Model) (peer.Command, error), work string, n int) (loading, error) {
	c, err := server(work, copies(megabyte(), n)...)
	if err != nil {
		return loading{}, err
	}
	s, err := peer.Start(ctx, c)
	if err != nil {
		return loading{}, err
	}
	defer s.Close()
	rss, err := s.Process.RSS()
	if err != nil {
		return loading{}, err
	}
	return loading{Server: s.Name, Command: c.String(), ReadyMS: float64(s.Startup) / 1e6, RSSMB: float64(rss) / 1e6}, nil
}

// measureIdle measures what many idle models cost.
func (r *results) measureIdle(ctx context.Context, o options) error {
	small := peer.Small
	small.Settings += peer.OneThread
	many, err := peer.Shoal(o.shoal, filepath.Join(o.work, "idle"), copies(small, o.idle)...)
	if err != nil {
		return err
	}
	r.Command = many.String()
	s, err := peer.Start(ctx, many)
	if err != nil {
		return err
	}
	defer s.Close()
	one, err := peer.Shoal(o.shoal, filepath.Join(o.work, "single"), copies(small, 1)...)
	if err != nil {
		return err
	}
	alone, err := peer.Start(ctx, one)
	if err != nil {
		return err
	}
	defer alone.Close()
	select { // memory of the start is given back meanwhile
	case <-time.After(o.settle):
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.Index, err = ask(ctx, o.asks, http.MethodPost, "http://"+s.HTTP+"/v2/repository/index"); err != nil {
		return err
	}
	if r.Metrics, err = ask(ctx, o.asks, http.MethodGet, "http://"+s.Metrics+"/metrics"); err != nil {
		return err
	}
	if err := r.compareRequests(ctx, o, alone, s, copies(small, 1)[0]); err != nil {
		return err
	}
	if r.Poll, err = polls(ctx, o, many, s); err != nil {
		return err
	}
	return nil
}

// ask sends n requests one after another.
func ask(ctx context.Context, n int, method, url string) (answers, error) {
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // this process must not disturb the server
	var times []float64
	var size int64
	for range n {
		begin := time.Now()
		req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
		if err != nil {
			return answers{}, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return answers{}, err
		}
		size, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			return answers{}, fmt.Errorf("%s: status %d, %w", url, resp.StatusCode, err)
		}
		times = append(times, float64(time.Since(begin))/1e6)
	}
	slices.Sort(times)
	return answers{P50MS: times[n/2], P99MS: times[n*99/100], KB: float64(size) / 1e3}, nil
}

// compareRequests loads both servers in turn, and takes the median of the
// rounds' ratios.
func (r *results) compareRequests(ctx context.Context, o options, alone, many *peer.Server, m peer.Model) error {
	var ratios, ones, manys []float64
	for round := range o.rounds + 1 {
		var us [2]float64
		order := []int{0, 1}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, i := range order {
			s := []*peer.Server{alone, many}[i]
			target, err := measure.Binary(s.HTTP, m)
			if err != nil {
				return err
			}
			got, err := measure.Run(ctx, s, measure.Load{Model: m.Name, Target: target, Callers: 4, Duration: o.duration})
			if err != nil {
				return err
			}
			us[i] = got.CPU
		}
		if round == 0 {
			continue // warm-up
		}
		ones, manys, ratios = append(ones, us[0]), append(manys, us[1]), append(ratios, us[1]/us[0])
	}
	r.Request = request{OneUS: report.Median(ones), ManyUS: report.Median(manys), Ratio: report.Median(ratios)}
	return nil
}

// polls returns what a look at the unchanged repository costs: the CPU time of a
// server that polls every second beyond that of one that does not.
func polls(ctx context.Context, o options, c peer.Command, quiet *peer.Server) (poll, error) {
	c.Args = append(slices.Clone(c.Args), "--model-control-mode=poll", "--repository-poll-secs=1")
	c.Log += "-poll"
	s, err := peer.Start(ctx, c)
	if err != nil {
		return poll{}, err
	}
	defer s.Close()
	spent := func(s *peer.Server) (time.Duration, error) {
		before, err := s.Process.CPU()
		if err != nil {
			return 0, err
		}
		select {
		case <-time.After(o.polls):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		after, err := s.Process.CPU()
		return after - before, err
	}
	busy, err := spent(s)
	if err != nil {
		return poll{}, err
	}
	idle, err := spent(quiet)
	if err != nil {
		return poll{}, err
	}
	once := float64(busy-idle) / float64(time.Millisecond) / o.polls.Seconds()
	return poll{OnceMS: once, SharePercent: once / 15_000 * 100}, nil
}
