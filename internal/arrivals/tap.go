package arrivals

import (
	"errors"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"shoal/internal/infer"
	"shoal/internal/model"
)

// Path is where a server's metrics port streams arrivals.
const Path = "/arrivals"

// A Tap is where a server reports arrivals, and where recordings get them.
// While nobody records it costs one load of a pointer. It never allocates. The
// zero value is ready.
type Tap struct {
	recordings atomic.Pointer[[]*Recording]

	mu sync.Mutex // serialises changes of recordings
}

const (
	// tapRoom is how many arrivals may wait to be written. Further ones are
	// dropped and counted: requests must not wait for a disk.
	tapRoom = 8192
	// sampleInputs and sampleDims bound a sample; requests with more are
	// dropped and counted.
	sampleInputs = 8
	sampleDims   = 32
	// flushEvery bounds how long an arrival stays in the write buffer.
	flushEvery = 200 * time.Millisecond
	// maxRecordings bounds the recordings at one time.
	maxRecordings = 8
)

// A sample is an arrival in the tap's buffer: a plain value, so that it
// allocates nothing.
type sample struct {
	at      time.Time
	sig     *model.Signature
	version int64
	inputs  int
	bytes   [sampleInputs]int64
	index   [sampleInputs]int
	ranks   [sampleInputs]int
	dims    [sampleDims]int64
}

// Arrived reports a request that was checked. It never blocks.
func (t *Tap) Arrived(sig *model.Signature, version int64, r *infer.Request) {
	list := t.recordings.Load()
	if list == nil {
		return
	}
	s := sample{at: time.Now(), sig: sig, version: version}
	fits := s.take(r)
	for _, rec := range *list {
		rec.put(&s, fits)
	}
}

// take copies the request's shapes; it returns false if they do not fit.
func (s *sample) take(r *infer.Request) bool {
	used := 0
	if len(r.Inputs) > sampleInputs {
		return false
	}
	for i := range r.Inputs {
		in := &r.Inputs[i]
		if used+len(in.Shape) > sampleDims {
			return false
		}
		used += copy(s.dims[used:], in.Shape)
		s.index[i], s.ranks[i], s.bytes[i] = in.Index, len(in.Shape), int64(in.Data.Size())
	}
	s.inputs = len(r.Inputs)
	return true
}

// kind returns the sample's kind.
func (s *sample) kind() Kind {
	k := Kind{Model: s.sig.Name, Version: strconv.FormatInt(s.version, 10)}
	dims := s.dims[:]
	for i := range s.inputs {
		k.Inputs = append(k.Inputs, Input{Name: s.sig.Inputs[s.index[i]].Name, Shape: dims[:s.ranks[i]:s.ranks[i]], Bytes: s.bytes[i]})
		dims = dims[s.ranks[i]:]
	}
	return k
}

// A Recording writes arrivals until it is closed.
type Recording struct {
	tap     *Tap
	out     *writer
	flushed func() // called after the buffer was flushed; may be nil
	started time.Time
	samples chan sample
	missed  atomic.Int64 // not recorded since the last line
	stop    chan struct{}
	once    sync.Once
	done    chan struct{} // closed after the last write
	broken  chan struct{} // closed when writing failed
	failed  bool          // broken is closed
}

// Record starts to write a trace to out. It calls flushed, unless nil, whenever
// lines were written to out.
func (t *Tap) Record(out io.Writer, flushed func()) (*Recording, error) {
	rec := &Recording{
		tap: t, started: time.Now(), flushed: flushed, samples: make(chan sample, tapRoom),
		stop: make(chan struct{}), done: make(chan struct{}), broken: make(chan struct{}),
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*Recording
	if old := t.recordings.Load(); old != nil {
		list = append(list, *old...)
	}
	if len(list) >= maxRecordings {
		return nil, errors.New("arrivals are being recorded " + strconv.Itoa(maxRecordings) + " times already; end one of them")
	}
	rec.out = newWriter(out, rec.started.UTC())
	list = append(list, rec)
	t.recordings.Store(&list)
	go rec.write() // ended by Close
	return rec, nil
}

func (rec *Recording) put(s *sample, fits bool) {
	if fits {
		select {
		case rec.samples <- *s:
			return
		default:
		}
	}
	rec.missed.Add(1)
}

// Broken is closed when the trace cannot be written any more; Close returns the
// error.
func (rec *Recording) Broken() <-chan struct{} { return rec.broken }

// write writes samples until the recording is closed and the buffer is empty.
func (rec *Recording) write() {
	defer close(rec.done)
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	rec.flush()
	for {
		select {
		case s := <-rec.samples:
			rec.sample(&s)
		case <-ticker.C:
			rec.flush()
		case <-rec.stop:
			for len(rec.samples) > 0 {
				s := <-rec.samples
				rec.sample(&s)
			}
			rec.flush()
			return
		}
	}
}

func (rec *Recording) sample(s *sample) {
	rec.out.arrival(max(0, s.at.Sub(rec.started)), s.kind())
}

func (rec *Recording) flush() {
	rec.out.dropped(rec.missed.Swap(0))
	if err := rec.out.flush(); err != nil && !rec.failed {
		rec.failed = true
		close(rec.broken)
	}
	if rec.flushed != nil && rec.out.err == nil {
		rec.flushed()
	}
}

// Close ends the recording. Arrivals before it are written. It returns the
// first error of writing.
func (rec *Recording) Close() error {
	rec.once.Do(func() {
		rec.tap.remove(rec)
		close(rec.stop)
	})
	<-rec.done
	return rec.out.err
}

func (t *Tap) remove(rec *Recording) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*Recording
	for _, r := range *t.recordings.Load() {
		if r != rec {
			list = append(list, r)
		}
	}
	if len(list) == 0 {
		t.recordings.Store(nil)
		return
	}
	t.recordings.Store(&list)
}
