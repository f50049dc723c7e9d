package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"shoal/bench/internal/peer"
	"shoal/internal/backend/onnx/ort"
	"shoal/internal/tensor"
)

// aloneRows are the batches that ONNX Runtime alone runs.
var aloneRows = []int{1, 2, 4, 8, 16, 32, 64}

// An alone is ONNX Runtime without a server: the sessions of a model, one for each
// instance, each on one thread. It says what a server could reach at most.
type alone struct {
	lib      *ort.Library
	sessions []*ort.Session
	model    peer.Model
	maxRows  int
}

// openAlone loads the model as often as there are instances. The file is written
// under work. The caller closes what it gets.
func openAlone(lib *ort.Library, work string, m peer.Model, instances int) (*alone, error) {
	b, err := m.ONNX()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(work, "alone.onnx")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		return nil, err
	}
	a := &alone{lib: lib, model: m, maxRows: m.MaxBatch}
	for range instances {
		s, err := lib.NewSession(path, ort.Options{Intra: 1, Inter: 1})
		if err != nil {
			a.close()
			return nil, fmt.Errorf("model %q: %w", m.Name, err)
		}
		a.sessions = append(a.sessions, s)
	}
	return a, nil
}

func (a *alone) close() {
	for _, s := range a.sessions {
		s.Close()
	}
}

// A batchCost is what ONNX Runtime alone takes for a batch.
type batchCost struct {
	Rows          int     `json:"rows"`
	Micros        float64 `json:"us"`
	RowsPerSecond float64 `json:"rows_per_second"` // of all instances together
}

// costs runs batches of every size for about d each.
func (a *alone) costs(ctx context.Context, d time.Duration) ([]batchCost, error) {
	var all []batchCost
	for _, rows := range aloneRows {
		if rows > a.maxRows {
			break
		}
		c, err := a.cost(ctx, rows, d)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// cost runs batches of so many rows on all sessions at once for about d.
func (a *alone) cost(ctx context.Context, rows int, d time.Duration) (batchCost, error) {
	var wg sync.WaitGroup
	loops := make([]*loop, len(a.sessions))
	errs := make([]error, len(a.sessions))
	for i, s := range a.sessions {
		l, err := newLoop(s, a.model, rows)
		if err != nil {
			return batchCost{}, err
		}
		defer l.close()
		if err := l.run(); err != nil { // the first run allocates
			return batchCost{}, err
		}
		loops[i] = l
	}
	start := time.Now()
	for i, l := range loops {
		wg.Go(func() {
			for done := false; !done; { // once at least: a busy machine may use up d first
				errs[i] = l.run()
				l.runs++
				done = errs[i] != nil || ctx.Err() != nil || time.Since(start) >= d
			}
		})
	}
	wg.Wait()
	elapsed, runs := time.Since(start), 0
	for i, l := range loops {
		if errs[i] != nil {
			return batchCost{}, errs[i]
		}
		runs += l.runs
	}
	return batchCost{
		Rows:          rows,
		Micros:        1e6 * elapsed.Seconds() * float64(len(loops)) / float64(runs),
		RowsPerSecond: float64(rows*runs) / elapsed.Seconds(),
	}, ctx.Err()
}

// A loop runs one batch over and over.
type loop struct {
	call    *ort.Call
	lib     *ort.Library
	inputs  *ort.Names
	outputs *ort.Names
	in, out []ort.Value
	runs    int
}

func newLoop(s *ort.Session, m peer.Model, rows int) (*loop, error) {
	infos, err := s.Outputs()
	if err != nil {
		return nil, err
	}
	l := &loop{call: ort.NewCall(s, nil), lib: s.Library()}
	var names []string
	for _, info := range infos {
		names = append(names, info.Name)
	}
	l.outputs, l.out = ort.NewNames(names), make([]ort.Value, len(names))
	names = nil
	for _, t := range m.Inputs {
		v, err := l.batch(t, rows)
		if err != nil {
			l.close()
			return nil, err
		}
		names, l.in = append(names, t.Name), append(l.in, v)
	}
	l.inputs = ort.NewNames(names)
	return l, nil
}

// batch returns a tensor with the row of t so many times.
func (l *loop) batch(t peer.Tensor, rows int) (ort.Value, error) {
	shape := append(tensor.Shape{int64(rows)}, t.Shape[1:]...)
	v, err := l.lib.NewOwnTensor(tensor.FP32, shape)
	if err != nil {
		return 0, err
	}
	at, err := l.call.Data(v)
	if err != nil {
		return 0, err
	}
	row := t.Raw()
	for all := ort.Bytes(at, rows*len(row)); len(all) > 0; all = all[len(row):] {
		copy(all, row)
	}
	return v, nil
}

// run runs the batch once.
func (l *loop) run() error {
	err := l.call.Run(l.inputs, l.in, l.outputs, l.out)
	for i, v := range l.out {
		l.call.Release(v)
		l.out[i] = 0
	}
	return err
}

func (l *loop) close() {
	for _, v := range l.in {
		l.lib.Release(v)
	}
}

// bestBatch returns the batch with the most rows a second.
func bestBatch(all []batchCost) batchCost {
	best := all[0]
	for _, c := range all[1:] {
		if c.RowsPerSecond > best.RowsPerSecond {
			best = c
		}
	}
	return best
}
