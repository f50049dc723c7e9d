// Package watch reads what a running Shoal holds and has counted, from outside:
// memory, files, threads and goroutines of its process, and its metrics.
package watch

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"shoal/bench/internal/peer"
)

// A State is what a process holds at one moment. Sizes are in bytes.
type State struct {
	RSS        int64 `json:"rss"`
	Files      int   `json:"files"`
	Threads    int   `json:"threads"`
	Goroutines int   `json:"goroutines"` // 0 where the server does not tell
	Heap       int64 `json:"heap"`       // Go's live memory after a collection; 0 where the server does not tell
}

// Read returns the state of the server. Profiles is the address of its
// --pprof-address, or empty.
func Read(s *peer.Server, profiles string) (State, error) {
	var st State
	var err error
	if st.RSS, err = s.Process.RSS(); err != nil {
		return st, err
	}
	dir := fmt.Sprintf("/proc/%d", s.Process.PID())
	files, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return st, err
	}
	threads, err := os.ReadDir(dir + "/task")
	if err != nil {
		return st, err
	}
	st.Files, st.Threads = len(files), len(threads)
	if profiles != "" {
		if st.Goroutines, err = goroutines(profiles); err != nil {
			return st, err
		}
		st.Heap, err = heap(profiles)
	}
	return st, err
}

// heap collects the server's garbage and returns what is left.
func heap(address string) (int64, error) {
	body, err := get("http://" + address + "/debug/pprof/heap?debug=1&gc=1")
	if err != nil {
		return 0, err
	}
	const name = "\n# HeapAlloc = "
	_, rest, ok := strings.Cut(body, name)
	if !ok {
		return 0, fmt.Errorf("heap profile has no line that begins with %q", strings.TrimSpace(name))
	}
	size, _, _ := strings.Cut(rest, "\n")
	return strconv.ParseInt(size, 10, 64)
}

// goroutines reads the first line of the goroutine profile.
func goroutines(address string) (int, error) {
	body, err := get("http://" + address + "/debug/pprof/goroutine?debug=1")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(body, "\n")
	_, total, ok := strings.Cut(line, "total ")
	if !ok {
		return 0, fmt.Errorf("goroutine profile begins with %q", line)
	}
	return strconv.Atoi(total)
}

// ResetPeak makes the process's peak of resident memory what it has now.
func ResetPeak(s *peer.Server) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.Process.PID()), []byte("5"), 0)
}

// Peak returns the most resident memory since the last ResetPeak.
func Peak(s *peer.Server) (int64, error) { return status(s, "VmHWM:") }

// Claimed returns the memory that the process may write to, whether it has or
// not: what it has set aside.
func Claimed(s *peer.Server) (int64, error) { return status(s, "VmData:") }

// status returns a size from the process's status.
func status(s *peer.Server, name string) (int64, error) {
	path := fmt.Sprintf("/proc/%d/status", s.Process.PID())
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if kb, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(kb), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("%s: no %s", path, name)
}

// Guard calls stop when the server's resident memory is more than so many bytes,
// so that a server that fails does not take the machine with it. It returns when
// the context ends.
func Guard(ctx context.Context, s *peer.Server, most int64, stop func(error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(50 * time.Millisecond):
		}
		if got, err := s.Process.RSS(); err == nil && got > most {
			stop(fmt.Errorf("the server has %d MB of memory, more than the %d at which this stops", got>>20, most>>20))
			return
		}
	}
}

// MedianRSS returns the median of the server's resident memory until the context
// ends.
func MedianRSS(ctx context.Context, s *peer.Server) int64 {
	var seen []int64
	for {
		if rss, err := s.Process.RSS(); err == nil {
			seen = append(seen, rss)
		}
		select {
		case <-ctx.Done():
			if len(seen) == 0 {
				return 0
			}
			slices.Sort(seen)
			return seen[len(seen)/2]
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// get returns the body of an answer of 200, over a connection of its own.
func get(url string) (string, error) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: HTTP %d: %s", url, response.StatusCode, body)
	}
	return string(body), err
}
