package trace

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// maxWaiting is how many bytes of traces a setting collects before they are written,
// whatever its log frequency.
const maxWaiting = 16 << 20

// maxUnwritten is how many bytes may wait for the disk. What comes then is dropped.
const maxUnwritten = 128 << 20

// A file is where traces are written: to the file itself, or to files with its name and
// a number. A goroutine writes them, so that no request waits for the disk.
type file struct {
	path    string
	log     *slog.Logger
	epoch   time.Time // and what the machine's monotonic clock said then
	offset  int64
	jobs    chan job
	done    chan struct{}
	bytes   atomic.Int64 // that wait in jobs
	dropped atomic.Uint64
	warned  atomic.Bool

	mu     sync.RWMutex // protects the field below and the end of jobs
	closed bool

	// Only the writer uses these.
	open  *os.File // the file itself, once something was written to it
	index int
}

// A job is traces to write.
type job struct {
	text   []byte
	traces int
	apart  bool // to a file with the next number
}

// startFile returns the file at a path, which it does not create yet.
func startFile(path string, log *slog.Logger) (*file, error) {
	if s, err := os.Stat(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("the trace file's folder: %w", err)
	} else if !s.IsDir() {
		return nil, fmt.Errorf("the trace file's folder %s is not a folder", filepath.Dir(path))
	}
	f := &file{path: path, log: log, epoch: time.Now(), offset: monotonic(), jobs: make(chan job, 1024), done: make(chan struct{})}
	go f.write()
	return f, nil
}

// nanos returns a time as Triton writes it, by the machine's monotonic clock.
func (f *file) nanos(t time.Time) int64 { return f.offset + int64(t.Sub(f.epoch)) }

// save has traces written, or dropped when the disk is too slow.
func (f *file) save(text []byte, traces int, apart bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.bytes.Add(int64(len(text))) <= maxUnwritten && !f.closed {
		select {
		case f.jobs <- job{text, traces, apart}:
			return
		default:
		}
	}
	f.bytes.Add(-int64(len(text)))
	f.drop(traces, "the disk is too slow for them")
}

// drop counts lost traces. The first time, the log says so.
func (f *file) drop(traces int, why string) {
	f.dropped.Add(uint64(traces))
	if !f.warned.Swap(true) {
		f.log.Error("traces are lost", "file", f.path, "err", why)
	}
}

// write writes what is saved, until close.
func (f *file) write() {
	defer close(f.done)
	for j := range f.jobs {
		var err error
		if j.apart {
			name := f.path + "." + strconv.Itoa(f.index)
			f.index++
			err = os.WriteFile(name, append(append([]byte{'['}, j.text...), ']'), 0o644)
		} else {
			err = f.append(j.text)
		}
		f.bytes.Add(-int64(len(j.text)))
		if err != nil {
			f.drop(j.traces, err.Error())
		}
	}
	if f.open == nil {
		return
	}
	_, err := f.open.WriteString("]")
	if closing := f.open.Close(); err == nil {
		err = closing
	}
	if err != nil {
		f.drop(0, err.Error())
	}
}

// append adds traces to the file itself, a list that close ends.
func (f *file) append(text []byte) (err error) {
	before := ","
	if f.open == nil {
		if f.open, err = os.Create(f.path); err != nil {
			return err
		}
		before = "["
	}
	_, err = f.open.Write(append([]byte(before), text...))
	return err
}

// close ends the file when everything is written. What comes later is dropped.
func (f *file) close() {
	f.mu.Lock()
	f.closed = true
	close(f.jobs)
	f.mu.Unlock()
	<-f.done
}

// collect adds a trace that has ended, and has those that wait written when it is time:
// when there are as many as the log frequency says, or when no more will come.
func (s *setting) collect(t *Trace, f *file) {
	text := t.appendJSON(nil, f.nanos)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended++
	if len(text) > 0 {
		if s.nWaiting > 0 {
			s.waiting = append(s.waiting, ',')
		}
		s.waiting = append(s.waiting, text...)
		s.nWaiting++
	}
	complete := s.ended == s.created
	switch {
	case s.count.Load() == 0 && complete, s.frequency != 0 && s.nWaiting >= int(s.frequency):
		s.flushLocked(f, true)
	case s.retired && complete, len(s.waiting) >= maxWaiting:
		s.flushLocked(f, s.frequency != 0)
	}
}

// retire has the traces written that wait, and reports whether those are all. If others
// are on their way, the last of them does.
func (s *setting) retire(f *file) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	if s.ended != s.created {
		return false
	}
	s.flushLocked(f, s.frequency != 0)
	return true
}

func (s *setting) flushLocked(f *file, apart bool) {
	if s.nWaiting > 0 {
		f.save(s.waiting, s.nWaiting, apart)
	}
	s.waiting, s.nWaiting = nil, 0
}
