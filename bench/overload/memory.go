package main

import (
	"sync"
	"time"

	"shoal/bench/internal/report"
	"shoal/internal/load"
)

// sampleEvery is how often the server's memory is looked at.
const sampleEvery = 100 * time.Millisecond

// A memoryWatch reads a process's resident memory until it is stopped.
type memoryWatch struct {
	done  chan struct{}
	wg    sync.WaitGroup
	sizes []float64 // MB, of a million bytes
	err   error
}

// watchMemory begins to read. The caller must stop it.
func watchMemory(p load.Process) *memoryWatch {
	w := &memoryWatch{done: make(chan struct{})}
	w.wg.Go(func() {
		t := time.NewTicker(sampleEvery)
		defer t.Stop()
		for w.err == nil {
			var n int64
			if n, w.err = p.RSS(); w.err == nil {
				w.sizes = append(w.sizes, float64(n)/1e6)
			}
			select {
			case <-t.C:
			case <-w.done:
				return
			}
		}
	})
	return w
}

// stop returns what was read.
func (w *memoryWatch) stop() ([]float64, error) {
	close(w.done)
	w.wg.Wait()
	return w.sizes, w.err
}

// memory is how much a server had while it was overloaded, in MB.
type memory struct {
	Early float64 `json:"early_mb"` // when it had got used to the load
	Late  float64 `json:"late_mb"`  // at the end
}

// growth compares the last fifth of the readings with the second. In the first a
// server may take what it needs for a load that it has not had before.
func growth(sizes []float64) memory {
	fifth := max(1, len(sizes)/5)
	second := min(fifth, len(sizes)-1)
	return memory{
		Early: report.Median(sizes[second : second+min(fifth, len(sizes)-second)]),
		Late:  report.Median(sizes[len(sizes)-fifth:]),
	}
}
