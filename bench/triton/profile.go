package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"shoal/bench/internal/measure"
	"shoal/bench/internal/peer"
)

// profile takes no part in the comparison: it loads Shoal alone, row by row, and
// keeps a CPU profile of each in the folder asked for, to see where the time goes.
func profile(ctx context.Context, o options, rows []row, mlps []mlpRow) error {
	c, err := peer.Shoal(o.shoal, o.work, modelsOf(rows, mlps)...)
	if err != nil {
		return err
	}
	address, err := peer.FreeAddress()
	if err != nil {
		return err
	}
	c.Args = append(c.Args, "--pprof-address", address)
	s, err := peer.Start(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := os.MkdirAll(o.profile, 0o755); err != nil {
		return err
	}
	var loaders []loader
	for _, r := range rows {
		loaders = append(loaders, r)
	}
	for _, r := range mlps {
		loaders = append(loaders, r)
	}
	for _, r := range loaders {
		file := filepath.Join(o.profile, r.name()+".pprof")
		got, err := profileRow(ctx, o, r, s, address, file)
		if err != nil {
			return err
		}
		fmt.Printf("%-22s CPU %6.1f us/req   go tool pprof -top %s\n", r.name(), got.CPU, file)
	}
	return nil
}

// A loader is a row of either table.
type loader interface {
	name() string
	load(s *peer.Server, warmup, duration time.Duration) (measure.Load, error)
}

// profileRow loads the server a little longer than the profile is taken, so
// that the profile sees nothing but load.
func profileRow(ctx context.Context, o options, r loader, s *peer.Server, address, file string) (measure.Sample, error) {
	taken := make(chan error, 1)
	seconds := max(1, int(o.duration.Seconds()))
	go func() {
		taken <- fetch(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", address, seconds), file)
	}()
	l, err := r.load(s, 0, time.Duration(seconds)*time.Second+300*time.Millisecond)
	if err != nil {
		return measure.Sample{}, errors.Join(err, <-taken)
	}
	got, err := measure.Run(ctx, s, l)
	return got, errors.Join(err, <-taken)
}

// fetch stores what a URL has in a file.
func fetch(ctx context.Context, url, file string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	b, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}
