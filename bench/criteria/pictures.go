package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"shoal/internal/perf"
)

// watched compares the throughput of noop with a view on a terminal and without,
// in pairs whose order alternates, so that drift hits both alike.
func watched(ctx context.Context, b *bench) (string, bool, error) {
	const pairs = 5
	var figures []string
	ok := true
	for _, mode := range []string{"line", "full"} {
		var ratios []float64
		for i := range pairs {
			var rate [2]float64 // off, on
			for _, on := range []int{i % 2, 1 - i%2} {
				v, err := b.watch(ctx, []string{"off", mode}[on])
				if err != nil {
					return "", false, err
				}
				rate[on] = v
			}
			ratios = append(ratios, rate[1]/rate[0])
		}
		slices.Sort(ratios)
		median := ratios[pairs/2]
		ok = ok && median >= 0.98 && median <= 1.02
		figures = append(figures, fmt.Sprintf("%s %+.2f%% (of %d pairs %+.2f%% to %+.2f%%)", mode, 100*(median-1), pairs, 100*(ratios[0]-1), 100*(ratios[pairs-1]-1)))
	}
	return strings.Join(figures, "; "), ok, nil
}

// watch measures noop on a terminal and returns its throughput.
func (b *bench) watch(ctx context.Context, mode string) (float64, error) {
	dir, err := os.MkdirTemp("", "shoal-criteria-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "result.json")
	screen, tty, err := openTerminal()
	if err != nil {
		return 0, err
	}
	defer func() { _ = screen.Close() }() // all was read
	cmd := exec.CommandContext(ctx, b.shoal, "perf", "-m", "noop", "-u", b.server.HTTP, "--concurrency-range", "16",
		"-p", "2000", "-r", "3", "--allow-unstable", "--json", file, "--live", mode)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, io.Discard, tty
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	_ = tty.Close()                    // the command has it now
	_, _ = io.Copy(io.Discard, screen) // ends with an error when the command has gone
	if err := cmd.Wait(); err != nil {
		return 0, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	r, err := perf.ParseResult(data)
	if err != nil {
		return 0, err
	}
	return r.Levels[0].Merged.Throughput(), nil
}

// outside finds what a browser would fetch.
var outside = regexp.MustCompile(`(?i)(https?:)?//[a-z]|@import|\burl\(|<(link|img|iframe|object|embed|base)\b|\ssrc=`)

// paged writes the page of a million requests.
func paged(ctx context.Context, b *bench) (string, bool, error) {
	dir, err := os.MkdirTemp("", "shoal-criteria-")
	if err != nil {
		return "", false, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "page.html")
	_, stderr, code, err := b.run(ctx, "perf", "-m", "noop", "-u", b.server.HTTP, "--concurrency-range", "16", "--request-count", "1000000", "--html", file)
	if err != nil {
		return "", false, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", false, fmt.Errorf("%w; exit code %d: %s", err, code, stderr)
	}
	text := regexp.MustCompile(`href="data:[^"]*"`).ReplaceAllString(string(data), "")
	references := len(outside.FindAllString(text, -1))
	return fmt.Sprintf("%d bytes, %d references", len(data), references), len(data) <= 600_000 && references == 0, nil
}
