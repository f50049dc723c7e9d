// Package watch reads what a running Shoal holds and has counted, from outside:
// memory, files, threads and goroutines of its process, and its metrics.
package watch

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
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
		st.Goroutines, err = goroutines(profiles)
	}
	return st, err
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
func Peak(s *peer.Server) (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", s.Process.PID()))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if kb, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(kb), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("%s: no VmHWM", f.Name())
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
