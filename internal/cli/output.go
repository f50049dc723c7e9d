package cli

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"shoal/internal/accesslog"
	"shoal/internal/logset"
	"shoal/internal/logsink"
)

// flushTime is how long the process waits at its end for the last lines of the
// log.
const flushTime = 250 * time.Millisecond

// An output is where a running server writes. Whatever happens to the streams
// behind it, no write blocks, fails or ends the process.
type output struct {
	log            *slog.Logger
	settings       *logset.Control
	stdout, stderr *logsink.Sink
	file           *logsink.Sink  // of --log-file; nil without
	requests       *logsink.Sink  // of --access-log; nil without
	access         *accesslog.Log // on requests
}

// startOutput starts to write to the streams and, if the flags say so, a file.
func startOutput(l *logFlags, stdout, stderr io.Writer) (*output, error) {
	file, err := openLog("--log-file", l.file)
	if err != nil {
		return nil, err
	}
	var requests io.Writer
	switch l.access {
	case "":
	case "-":
		requests = stdout
	default:
		if requests, err = openLog("--access-log", l.access); err != nil {
			return nil, err
		}
	}
	// Without this, a write to a standard stream whose reader is gone would end
	// the process. The signal is not ignored, since workers would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	l.resolve(stderr)
	settings := logset.New(l.settings())
	opt := logsink.Options{Notice: logsink.SlogNotice(func(b *bytes.Buffer) slog.Handler { return l.handler(b, settings) })}
	o := &output{settings: settings, stdout: logsink.Start(stdout, logsink.Options{}), stderr: logsink.Start(stderr, opt)}
	to := o.stderr
	if file != nil {
		o.file = logsink.Start(file, opt) // the file is open until the process ends
		to = o.file
	}
	if requests != nil {
		form, err := accesslog.ParseForm(l.accessFormat)
		if err != nil {
			return nil, err
		}
		o.requests = logsink.Start(requests, logsink.Options{Delay: accessDelay, Notice: accessNotice(form)})
		o.access = accesslog.New(o.requests, form)
	}
	o.log = slog.New(l.handler(to, settings))
	return o, nil
}

// accessDelay is how long a line of the access log may wait for others. A write for
// each would cost the server more than the rest of the log does.
const accessDelay = 100 * time.Millisecond

// accessNotice returns what says in the access log how many lines are missing. In JSON
// every line is an object.
func accessNotice(form accesslog.Form) func(lines uint64) []byte {
	if form != accesslog.JSON {
		return nil
	}
	return logsink.SlogNotice(func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) })
}

// openLog opens the file that a flag names, to append to it; nil for none.
func openLog(flag, path string) (*os.File, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log given by %s: %w", flag, err)
	}
	return file, nil
}

func (o *output) sinks() []*logsink.Sink {
	return slices.DeleteFunc([]*logsink.Sink{o.stdout, o.stderr, o.file, o.requests}, func(s *logsink.Sink) bool { return s == nil })
}

// dropped returns how many lines were not written.
func (o *output) dropped() uint64 {
	var n uint64
	for _, s := range o.sinks() {
		n += s.Dropped()
	}
	return n
}

// each calls f with every sink, side by side, and returns when all calls have.
func (o *output) each(f func(*logsink.Sink)) {
	var wg sync.WaitGroup
	for _, s := range o.sinks() {
		wg.Go(func() { f(s) })
	}
	wg.Wait()
}

// flush writes pending lines, for at most flushTime.
func (o *output) flush() { o.each(func(s *logsink.Sink) { s.Flush(flushTime) }) }

// close writes pending lines, for at most flushTime, and accepts no more.
func (o *output) close() { o.each(func(s *logsink.Sink) { s.Close(flushTime) }) }

// sayLast writes a command's last words. A stream that nobody reads does not
// block the process.
func sayLast(w io.Writer, text string) {
	s := logsink.Start(w, logsink.Options{})
	_, _ = io.WriteString(s, text) // never fails
	s.Close(flushTime)
}
