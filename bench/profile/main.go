// Command profile puts the server and the load generator under the loads that
// they are built for and writes what their processors did as the profile with
// which Go builds them the next time. Arguments name further profiles to add. See
// bench/README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"shoal/bench/internal/peer"
)

type options struct {
	shoal, python, work, out string
	window                   time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.shoal, "shoal", "build/shoal", "Shoal's binary")
	flag.StringVar(&o.python, "python", "python3", "a Python that has numpy")
	flag.StringVar(&o.work, "work", "build/bench/profile", "folder for models, logs and single profiles")
	flag.StringVar(&o.out, "out", "cmd/shoal/default.pgo", "file for the profile")
	flag.DurationVar(&o.window, "window", 700*time.Millisecond, "a third of each load")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench/profile:", err)
		os.Exit(1)
	}
}

// run profiles every server under its loads and writes the sum.
func run(ctx context.Context, o options) error {
	if err := os.RemoveAll(o.work); err != nil {
		return err
	}
	if err := os.MkdirAll(o.work, 0o755); err != nil {
		return err
	}
	native, err := peer.Shoal(o.shoal, o.work, peer.Small, small, peer.Big, mlp)
	if err != nil {
		return err
	}
	python, err := peer.ShoalPython(o.shoal, o.python, o.work, peer.Small, small)
	if err != nil {
		return err
	}
	n, err := o.serve(ctx, native, "native", nativeLoads)
	if err != nil {
		return err
	}
	m, err := o.serve(ctx, python, "python", pythonLoads)
	if err != nil {
		return err
	}
	return merge(o.out, slices.Concat(n, m, flag.Args()))
}

// serve profiles one server and its clients and returns the profiles' paths.
func (o options) serve(ctx context.Context, c peer.Command, name string, loads [][]string) (profiles []string, err error) {
	path := filepath.Join(o.work, name+".pprof")
	c.Env = append(c.Env, profileVariable+"="+path)
	s, err := peer.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }() // which writes its profile
	profiles = []string{path}
	for i, load := range loads {
		fmt.Fprintln(os.Stderr, name, load)
		client := filepath.Join(o.work, fmt.Sprintf("%s-client-%d.pprof", name, i))
		if err := o.load(ctx, s, load, client); err != nil {
			return nil, err
		}
		profiles = append(profiles, client)
	}
	return profiles, nil
}

// load runs the load generator once.
func (o options) load(ctx context.Context, s *peer.Server, args []string, profile string) error {
	url := s.HTTP
	if args[1] == "grpc" {
		url = s.GRPC
	}
	cmd := exec.CommandContext(ctx, o.shoal, append([]string{
		"perf", "-u", url, "--measurement-interval", fmt.Sprint(o.window.Milliseconds()), "--stability-percentage", "999",
	}, args...)...)
	cmd.Env = append(os.Environ(), profileVariable+"="+profile)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
	}
	return nil
}

// profileVariable has Shoal write a CPU profile.
const profileVariable = "SHOAL_CPU_PROFILE"
