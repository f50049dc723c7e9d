package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxLine is how much of a line goes into the log; the rest is counted.
	maxLine = 4 << 10
	// maxPending is how many lines wait for a slow log before more are dropped:
	// a child must never block on the log.
	maxPending = 1024
	// tailLines is how many lines of standard error are kept for errors.
	tailLines = 20
)

// An output carries a child's output to the log. Lines are read as fast as the
// child writes them and logged by a separate goroutine.
type output struct {
	cmd                      Command
	stdout, stderr           *os.File // our ends
	childStdout, childStderr *os.File
	tail                     tail
	lines                    chan line
	dropped                  atomic.Int64
	readers, logger          sync.WaitGroup
}

type line struct {
	stream string
	text   string
}

// newOutput opens the pipes.
func newOutput(cmd Command) (*output, error) {
	o := &output{cmd: cmd, lines: make(chan line, maxPending)}
	var err error
	if o.stdout, o.childStdout, err = os.Pipe(); err != nil {
		return nil, err
	}
	if o.stderr, o.childStderr, err = os.Pipe(); err != nil {
		o.stdout.Close()
		o.childStdout.Close()
		return nil, err
	}
	return o, nil
}

// started closes the child's ends, which it has by now, and reads ours; if
// there is no child, it closes those too.
func (o *output) started(ok bool) {
	o.childStdout.Close()
	o.childStderr.Close()
	if !ok {
		o.stdout.Close()
		o.stderr.Close()
		return
	}
	o.readers.Go(func() { o.read("stdout", o.stdout, nil) })
	o.readers.Go(func() { o.read("stderr", o.stderr, &o.tail) })
	o.logger.Go(o.write)
}

// drain returns when all output has been read; the log, which may be slow, gets
// it after that. It reads for at most limit if some process still holds the
// pipes open.
func (o *output) drain(limit time.Duration) {
	deadline := time.Now().Add(limit)
	_ = o.stdout.SetReadDeadline(deadline)
	_ = o.stderr.SetReadDeadline(deadline)
	o.readers.Wait()
	o.stdout.Close()
	o.stderr.Close()
	close(o.lines)
}

// read splits the output of one pipe into lines.
func (o *output) read(stream string, from io.Reader, keep *tail) {
	r := bufio.NewReaderSize(from, maxLine)
	for {
		text, err := readLine(r)
		if text != "" || err == nil {
			if keep != nil {
				keep.add(text)
			}
			select {
			case o.lines <- line{stream, text}:
			default:
				o.dropped.Add(1)
			}
		}
		if err != nil {
			return
		}
	}
}

// readLine returns the next line without its end, cut to the size of r's
// buffer. Bytes that are not UTF-8 are replaced.
func readLine(r *bufio.Reader) (string, error) {
	part, err := r.ReadSlice('\n')
	text := strings.ToValidUTF8(strings.TrimRight(string(part), "\r\n"), "\uFFFD")
	more := 0
	for errors.Is(err, bufio.ErrBufferFull) {
		part, err = r.ReadSlice('\n')
		more += len(part)
	}
	if more > 0 {
		text += fmt.Sprintf(" ... (%d bytes more)", more)
	}
	return text, err
}

// write hands the lines to the log.
func (o *output) write() {
	log := o.cmd.Log.With("model", o.cmd.Model, "instance", o.cmd.Name)
	for l := range o.lines {
		log.LogAttrs(context.Background(), slog.LevelInfo, l.text, slog.String("stream", l.stream))
		if n := o.dropped.Swap(0); n > 0 {
			log.Warn("the log was too slow for the worker's output; lines were left out", "lines", n)
		}
	}
}

// A tail keeps the last lines.
type tail struct {
	mu   sync.Mutex // protects the fields below
	ring [tailLines]string
	n    int
}

func (t *tail) add(s string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ring[t.n%tailLines] = s
	t.n++
}

// lines returns what is kept, oldest first.
func (t *tail) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]string, 0, min(t.n, tailLines))
	for i := max(0, t.n-tailLines); i < t.n; i++ {
		out = append(out, t.ring[i%tailLines])
	}
	return out
}
