package arrivals

import (
	"bufio"
	"encoding/json"
	"io"
	"time"
)

// A writer writes a trace line by line.
type writer struct {
	out *bufio.Writer
	err error
}

func newWriter(w io.Writer, started time.Time) *writer {
	t := &writer{out: bufio.NewWriter(w)}
	t.object(head{formatName, formatVersion, started})
	return t
}

func (w *writer) object(v any) {
	if w.err != nil {
		return
	}
	data, err := json.Marshal(v)
	if err != nil {
		w.err = err
		return
	}
	_, w.err = w.out.Write(append(data, '\n'))
}

func (w *writer) arrival(at time.Duration, k Kind) {
	ns := int64(at)
	w.object(line{At: &ns, Kind: k})
}

func (w *writer) dropped(n int64) {
	if n > 0 {
		w.object(line{Dropped: n})
	}
}

func (w *writer) flush() error {
	if w.err == nil {
		w.err = w.out.Flush()
	}
	return w.err
}

// Write writes a trace that Parse reads again.
func Write(out io.Writer, t *Trace) error {
	w := newWriter(out, t.Started)
	for _, a := range t.Arrivals {
		w.arrival(a.At, t.Kinds[a.Kind])
	}
	w.dropped(t.Dropped)
	return w.flush()
}
