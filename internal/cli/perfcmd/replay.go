package perfcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"shoal/internal/arrivals"
	"shoal/internal/cli/command"
	"shoal/internal/client"
	"shoal/internal/perf"
)

// replayFlags are perf's flags about traces of arrivals.
type replayFlags struct {
	replay string
	speed  float64
	record string
	from   string
	length time.Duration
}

func (f *replayFlags) add(g *command.Group) {
	g.Text(&f.replay, "replay", "", "open loop: send requests as in this trace, a `file` of --record, of shoal serve --record-arrivals, or of times: seconds or RFC 3339 times, one per line")
	g.Decimal(&f.speed, "replay-speed", 1, "`times` as fast as the trace was")
	g.Text(&f.record, "record", "", "instead of measuring, write a trace of the arrivals at -u's host to this `file`, until Ctrl-C")
	g.Text(&f.from, "record-from", "", "record from this `source`: the URL of the server's metrics port (default: -u's host, port 8002), or a file of times")
	g.Span(&f.length, "record-time", 0, "record for this `long`, such as 30s (default: until Ctrl-C)")
}

// replay adds the flags to perf's settings.
func (b *builder) replay(s *perf.Settings) {
	f := b.flags
	b.wrong(f.replay == "" && b.given("replay-speed"), "--replay-speed goes with --replay")
	b.wrong(f.record == "" && (b.given("record-from") || b.given("record-time")), "--record-from and --record-time go with --record")
	if f.replay == "" {
		return
	}
	for _, name := range []string{"concurrency-range", "request-rate-range", "request-intervals", "request-count", "callers", "find-capacity", "binary-search", "warmup-request-count"} {
		b.wrong(b.given(name), "--replay chooses the load: remove --%s", name)
	}
	if !(f.speed > 0 && f.speed <= 1e6) {
		b.wrong(true, "--replay-speed is %v, want more than 0 and at most 1e6", f.speed)
		return
	}
	t, err := readTrace(f.replay)
	if err == nil {
		err = s.SetReplay(f.replay, t, f.speed)
		s.Plan.LatencyClock = f.clock
	}
	if err != nil {
		b.add(fmt.Errorf("--replay: %w", err))
	}
}

func readTrace(path string) (*arrivals.Trace, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	t, err := arrivals.Parse(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// recordTrace writes a trace from a server or a file.
func (f *flags) recordTrace(cmd *cobra.Command) error {
	if f.length < 0 {
		return command.Misused(cmd, fmt.Errorf("--record-time is %v, want 0 or more", f.length))
	}
	if f.replay != "" {
		return command.Misused(cmd, errors.New("--record and --replay cannot be combined: give one of them"))
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var n int
	var dropped int64
	var err error
	if f.from != "" && !strings.Contains(f.from, "://") {
		n, dropped, err = f.convert()
	} else {
		n, dropped, err = f.listen(ctx, cmd.ErrOrStderr())
	}
	if err != nil {
		return fail(cmd.ErrOrStderr(), err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "recorded %d arrivals in %s", n, f.record)
	if dropped > 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "; %d more were dropped", dropped)
	}
	fmt.Fprintln(cmd.OutOrStdout())
	return nil
}

// convert makes a trace from a file of times.
func (f *flags) convert() (n int, dropped int64, err error) {
	t, err := readTrace(f.from)
	if err != nil {
		return 0, 0, fmt.Errorf("--record-from: %w", err)
	}
	if f.model != "" {
		t = t.Of(f.model)
		for i := range t.Kinds {
			t.Kinds[i].Model = f.model
		}
	}
	err = writeFile(io.Discard, f.record, func(w io.Writer) error { return arrivals.Write(w, t) })
	return len(t.Arrivals), t.Dropped, err
}

// listen writes the server's arrivals until ctx or the time ends.
func (f *flags) listen(ctx context.Context, stderr io.Writer) (n int, dropped int64, err error) {
	url, err := f.tapURL()
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := openTap(ctx, url)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w; is it the metrics port of shoal serve? --record-from says where else", url, err)
	}
	defer func() { _ = body.Close() }() // there is nothing left to read
	fmt.Fprintf(stderr, "Recording what arrives at %s; Ctrl-C ends it.\n", url)
	if f.length > 0 {
		timer := time.AfterFunc(f.length, cancel)
		defer timer.Stop()
	}
	err = writeFile(io.Discard, f.record, func(w io.Writer) error {
		_, err := io.Copy(wholeLines{w, new([]byte)}, body)
		if errors.Is(err, context.Canceled) {
			return nil // as planned
		}
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	t, err := readTrace(f.record)
	if err != nil {
		return 0, 0, err
	}
	return len(t.Arrivals), t.Dropped, nil
}

// wholeLines forwards complete lines only, so that an interrupted recording
// ends with one.
type wholeLines struct {
	out  io.Writer
	rest *[]byte
}

func (w wholeLines) Write(p []byte) (int, error) {
	*w.rest = append(*w.rest, p...)
	end := strings.LastIndexByte(string(*w.rest), '\n') + 1
	if _, err := w.out.Write((*w.rest)[:end]); err != nil {
		return 0, err
	}
	*w.rest = append((*w.rest)[:0], (*w.rest)[end:]...)
	return len(p), nil
}

// tapURL returns the URL of the server's arrivals.
func (f *flags) tapURL() (string, error) {
	if f.from != "" {
		return strings.TrimSuffix(f.from, "/") + arrivals.Path, nil
	}
	url := f.url
	if url == "" {
		url = "localhost"
	}
	at, err := client.ParseAddress(url, 8000)
	if err != nil {
		return "", err
	}
	host, _, err := net.SplitHostPort(at.Host)
	if err != nil {
		host = client.HostOf(at.Host)
	}
	return "http://" + net.JoinHostPort(host, "8002") + arrivals.Path, nil
}

// openTap opens the stream of arrivals, until ctx ends.
func openTap(ctx context.Context, url string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		_ = answer.Body.Close() // its status says enough
		return nil, fmt.Errorf("the server answered %s", answer.Status)
	}
	return answer.Body, nil
}
