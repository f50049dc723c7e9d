package python

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"shoal/internal/status"
	"shoal/internal/worker"
)

// A link is a running worker: its process, and the memory and the socket that
// it shares with us. A worker.Supervisor supervises it.
type link struct {
	name    string
	log     *slog.Logger
	mem     *memory
	process *worker.Process
	socket  *os.File
	first   chan frame    // the worker's answer to its start
	gone    chan struct{} // closed when everything is freed
	file    string        // the name of the model's file, for errors

	imported atomic.Bool // the model's file is imported
	silent   atomic.Bool // the worker will send no more
	ending   atomic.Bool // it was asked to end
	streams  *streams    // the unfinished requests of a decoupled model
	clients  clients     // of the batch that runs, for other models
	count    counter     // handles the model's own metrics
	metrics  func(line string)
	calls    *calls // the worker's requests to other models

	maps bool // the worker can map files; set before it gets batches
	lent lent

	sending sync.Mutex
}

// startLink starts a worker and sends its first message. It returns when the
// process runs; the worker's answer comes through first. M is nil for a worker
// that does not run batches; onGPU means that it uses one.
func startLink(cmd worker.Command, first []byte, file string, m *loaded, onGPU bool) (*link, error) {
	l := &link{file: file, streams: newStreams(m), name: cmd.Name, log: cmd.Log.With("model", cmd.Model, "instance", cmd.Name), first: make(chan frame, 1), gone: make(chan struct{})}
	l.streams.cancel, l.clients.cancel = l.cancel, l.cancel
	l.count = m.counter()
	if m != nil {
		l.metrics = m.backend.options.HandlerMetrics
	}
	l.calls = newCalls(m, l)
	var err error
	if l.mem, err = newMemory(cmd.Name); err != nil {
		return nil, err
	}
	l.mem.pinned = onGPU
	var theirs *os.File
	if l.socket, theirs, err = socketpair(); err != nil {
		l.mem.close()
		return nil, err
	}
	cmd.Files = []*os.File{l.mem.file, l.mem.ring, l.mem.back, theirs}
	cmd.Env = append(cmd.Env[:len(cmd.Env):len(cmd.Env)], "SHOAL_WORKER_FDS=3,4,5,6")
	cmd.Ask = func() { _ = l.send(frameClose, nil) } // a worker that is gone need not be asked
	l.process, err = worker.Start(cmd)
	theirs.Close()
	if err != nil {
		l.socket.Close()
		l.mem.close()
		return nil, err
	}
	var reader sync.WaitGroup
	reader.Go(l.receive)
	go l.reap(&reader)
	_ = l.send(frameInit, first) // if it is gone already, the reader reports that
	return l, nil
}

// reap waits for the process and frees everything that it had.
func (l *link) reap(reader *sync.WaitGroup) {
	<-l.process.Done()
	l.socket.Close()
	reader.Wait()
	l.silence()
	l.streams.end(l.lostError())
	l.calls.end()
	l.endLent()
	l.mem.retire()
	close(l.gone)
}

// lostError returns the error of requests whose answers will not come.
func (l *link) lostError() error {
	var exit *worker.Exit
	if errors.As(l.process.Err(), &exit) {
		return exit.Lost()
	}
	return status.Wrap(status.Internal, l.process.Err(), "worker "+l.name+" ended")
}

// silence marks that the worker will send no more, and wakes whoever waits for
// it.
func (l *link) silence() {
	if !l.silent.Swap(true) {
		l.mem.wake()
	}
}

// Done implements worker.Worker.
func (l *link) Done() <-chan struct{} { return l.gone }

// Err implements worker.Worker.
func (l *link) Err() error { return l.process.Err() }

// Kill implements worker.Worker.
func (l *link) Kill(why error) { l.process.Kill(why) }

// Stop implements worker.Worker.
func (l *link) Stop() {
	l.ending.Store(true)
	l.process.Stop()
	<-l.gone
}

// reply answers a worker's question.
func (l *link) reply(ask int64, value float64, err error) error {
	msg := struct {
		Ask   int64   `json:"ask"`
		Value float64 `json:"value"`
		Error string  `json:"error,omitempty"`
	}{Ask: ask, Value: value}
	if err != nil {
		msg.Error = status.Public(err)
	}
	b, err := json.Marshal(msg)
	if err != nil {
		return wireFault("it asked for %v, which cannot be told: %v", value, err)
	}
	return l.send(frameReply, b)
}

// receive reads frames until the worker's end of the socket closes.
func (l *link) receive() {
	defer close(l.first)
	defer l.hangUp()
	r := bufio.NewReader(l.socket)
	for {
		f, err := readFrame(r)
		if err == nil {
			err = l.take(f)
		}
		if err != nil {
			if errors.Is(err, errWire) {
				l.process.Kill(err)
			}
			return
		}
	}
}

// hangUp ends a worker that has closed its end of the socket, unless it is
// about to end by itself.
func (l *link) hangUp() {
	l.silence()
	if l.ending.Load() {
		return
	}
	time.AfterFunc(endTime, func() {
		if !l.ending.Load() {
			l.process.Kill(errSilent)
		}
	})
}

// endTime is how long a worker may live without its socket: a process that ends
// closes its files a little before it is gone.
const endTime = 250 * time.Millisecond

// take handles a frame.
func (l *link) take(f frame) error {
	switch f.kind {
	case frameReady, frameDescribed, frameFailed:
		select {
		case l.first <- f:
		default: // only the first one counts
		}
	case frameImported:
		l.imported.Store(true)
	case frameLog:
		l.logLine(f.payload)
	case frameMetric:
		return l.metric(f.payload)
	case frameWatch:
		return l.watch(f.payload)
	case frameRoom:
		return l.room(f.payload)
	case frameSlot:
		return l.calls.slot(f.payload)
	case frameCall:
		return l.calls.call(f.payload)
	case frameNext:
		return l.calls.next(f.payload)
	case frameControl:
		return l.calls.control(f.payload)
	case frameResponse:
		return l.streams.respond(f.payload)
	}
	return nil
}

// logLine logs a line of the handler.
func (l *link) logLine(payload []byte) {
	var m struct{ Level, Text string }
	if json.Unmarshal(payload, &m) != nil {
		return
	}
	if m.Level == "metric" {
		if l.metrics != nil {
			for line := range strings.SplitSeq(m.Text, "\n") {
				l.metrics(line)
			}
		}
		return
	}
	level := slog.LevelInfo
	switch m.Level {
	case "error":
		level = slog.LevelError
	case "warn":
		level = slog.LevelWarn
	case "verbose":
		level = slog.LevelDebug
	}
	l.log.Log(context.Background(), level, m.Text)
}

// await returns the worker's first message, which must be of that kind. Limit
// is the time that ctx allows, for the error. After an error the worker is
// gone.
func (l *link) await(ctx context.Context, kind byte, limit time.Duration) ([]byte, error) {
	var f frame
	var ok bool
	select {
	case f, ok = <-l.first:
	case <-ctx.Done():
		imported := l.imported.Load()
		l.Kill(ctx.Err())
		<-l.gone
		if ctx.Err() == context.DeadlineExceeded {
			return nil, tooSlow(l.file, kind, imported, limit)
		}
		return nil, fmt.Errorf("worker %s: %w", l.name, ctx.Err())
	}
	if ok && f.kind == kind {
		return f.payload, nil
	}
	if !ok {
		select {
		case <-l.gone: // the worker's own end explains more than the timeout
		case <-time.After(exitGrace):
			l.settle()
		}
		return nil, l.deathAtStart()
	}
	l.settle()
	if f.kind != frameFailed {
		return nil, status.Errorf(status.Internal, "worker %s: an unexpected message of kind %d at its start", l.name, f.kind)
	}
	var m struct{ Error, Traceback string }
	if err := json.Unmarshal(f.payload, &m); err != nil {
		return nil, status.Wrap(status.Internal, err, "worker "+l.name+" did not start and gave no reason")
	}
	if m.Traceback == "" {
		return nil, status.Errorf(status.Internal, "%s", m.Error)
	}
	return nil, &status.Error{Code: status.Internal, Public: m.Error, Log: "its code raised an exception\n" + m.Traceback}
}

// tooSlow returns the error of a start that took too long, with the step that
// did.
func tooSlow(file string, kind byte, imported bool, limit time.Duration) error {
	what := "the import of " + file
	switch {
	case imported && kind == frameDescribed:
		what = "auto_complete_config of " + file
	case imported:
		what = "the initialization of the model in " + file
	}
	return status.Errorf(status.Unavailable, "%s took more than %v; raise the model's parameter %s or --backend-config=python,stub-timeout-seconds", what, limit, paramStart)
}

// exitGrace is how long a worker may take to exit after it closed its socket.
const exitGrace = 2 * time.Second

// settle waits for the end of a worker that has failed.
func (l *link) settle() {
	l.ending.Store(true)
	l.socket.Close() // it ends when it sees that
	l.process.Stop()
	<-l.gone
}

// deathAtStart returns the error of a worker that ended before it was ready.
func (l *link) deathAtStart() error {
	err := l.process.Err()
	var exit *worker.Exit
	if !errors.As(err, &exit) {
		return status.Wrap(status.Internal, err, "worker "+l.name+" did not start")
	}
	msg := fmt.Sprintf("worker %s did not start: %s", l.name, exit.Reason())
	if len(exit.Stderr) > 0 {
		msg += "; the end of its stderr:\n" + strings.Join(exit.Stderr, "\n")
	}
	return status.Errorf(status.Internal, "%s", msg)
}
