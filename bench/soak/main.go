// Command soak runs a server that was built with the race detector for an hour
// under everything that clients do at once: both protocols, ONNX and Python
// models, batching and decoupled streams, cancelled and cut off requests, and
// workers that are killed. Every answer is checked, and in the end the counts
// of clients and server must agree. See bench/README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"shoal/bench/internal/ask"
	"shoal/bench/internal/peer"
	"shoal/bench/internal/report"
	"shoal/bench/internal/watch"
)

type options struct {
	*report.Command
	shoal, work, python string
	duration            time.Duration
}

func main() {
	o := options{Command: report.NewCommand("soak")}
	flag.StringVar(&o.shoal, "shoal", "build/shoal-race", "Shoal's binary, built with the race detector")
	flag.StringVar(&o.work, "work", "build/bench/soak", "folder for models and logs")
	flag.StringVar(&o.python, "python", "python3", "Python with numpy, for the workers")
	flag.DurationVar(&o.duration, "duration", time.Hour, "how long")
	o.Main(func(ctx context.Context) ([]string, error) { return bench(ctx, o) })
}

// The models: calm is never cancelled nor killed, so that its counts must agree
// to the request.
var (
	calm    = ask.ONNX("calm", 16, "dynamic_batching { }\n")
	batched = ask.ONNX("batched", 16, "dynamic_batching { max_queue_delay_microseconds: 500 }\n"+ask.Instances(2))
	big     = ask.ONNX("big", 150_528, "")
	python  = ask.Python("python", 16, "dynamic_batching { }\n"+ask.Instances(2)+ask.Sleep(20))
	counts  = ask.Countdown("countdown", ask.Instances(2))
	all     = []ask.Model{calm, batched, big, python, counts}
)

// bench runs the soak and returns what went wrong.
func bench(ctx context.Context, o options) (missed []string, err error) {
	profiles, err := peer.FreeAddress()
	if err != nil {
		return nil, err
	}
	races, err := filepath.Abs(filepath.Join(o.work, "race"))
	if err != nil {
		return nil, err
	}
	command, err := serve(o, profiles, races)
	if err != nil {
		return nil, err
	}
	s, err := peer.Start(ctx, command)
	if err != nil {
		return nil, err
	}
	r := results{Facts: report.Gather(), Server: command.String(), Race: hasRaceDetector(o.shoal), Duration: o.duration.String()}
	err = run(ctx, o, s, profiles, &r)
	if err = errors.Join(err, s.Close()); err != nil {
		return nil, err
	}
	r.ExitCode = s.ExitCode()
	if r.Races, err = raceReports(races); err != nil {
		return nil, err
	}
	return r.missed(), o.Publish(os.Stdout, r, r.table(), r.page())
}

// serve returns the command of the server.
func serve(o options, profiles, races string) (peer.Command, error) {
	if _, err := os.Stat(o.shoal); err != nil {
		return peer.Command{}, fmt.Errorf("%w; make soak builds it", err)
	}
	repository := filepath.Join(o.work, "models")
	if err := ask.Write(repository, all...); err != nil {
		return peer.Command{}, err
	}
	if err := removeReports(races); err != nil {
		return peer.Command{}, err
	}
	return peer.Command{
		Name: "shoal",
		Args: []string{o.shoal, "serve", "--model-repository", repository, "--python", o.python, "--pprof-address", profiles},
		Env:  []string{"GORACE=exitcode=66 log_path=" + races},
		Log:  filepath.Join(o.work, "shoal.log"),
	}, nil
}

// run loads the server, first for a tenth of the time, after which the state at
// the start is taken, then for the whole time, and takes the state at the end.
func run(ctx context.Context, o options, s *peer.Server, profiles string, r *results) error {
	books := newLedger()
	warmUp := min(o.duration/10, time.Minute)
	if err := soak(ctx, s, books, warmUp); err != nil {
		return err
	}
	var err error
	if r.Start, err = settled(ctx, s, profiles); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "after %v of warm-up: %+v\n", warmUp, r.Start)
	if err := soak(ctx, s, books, o.duration); err != nil {
		return err
	}
	if r.End, err = settled(ctx, s, profiles); err != nil {
		return err
	}
	metrics, err := watch.ReadMetrics(s)
	if err != nil {
		return err
	}
	r.Kills, r.Halves, r.Wrong, r.Failed = books.kills, books.halves, books.wrong, books.failed
	for _, m := range all {
		r.Models = append(r.Models, books.account(m, metrics))
	}
	r.Restarts = int(metrics.Sum("shoal_worker_restarts_total"))
	return nil
}

// settled waits until the server has let go of what the clients left, at most
// half a minute, and returns its state.
func settled(ctx context.Context, s *peer.Server, profiles string) (watch.State, error) {
	last, err := watch.Read(s, profiles)
	for range 15 {
		if err != nil {
			break
		}
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-time.After(2 * time.Second):
		}
		var now watch.State
		now, err = watch.Read(s, profiles)
		if now.Files == last.Files && now.Goroutines == last.Goroutines {
			return now, err
		}
		last = now
	}
	return last, err
}
