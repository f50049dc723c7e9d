package onnx

import (
	"log/slog"
	"sync"
	"time"
)

// hugePages moves the memory of ONNX Runtime, that is the weights and what runs
// compute in, into huge pages: the processor then finds the addresses of large
// weights sooner. Triton and ONNX Runtime leave that to the system, most of which do
// it only for programs that ask.
type hugePages struct {
	log *slog.Logger

	mu    sync.Mutex // protects the fields below
	timer *time.Timer
	done  int // passes since the last instance started
}

// hugePagePasses are when the process's memory is looked through after an instance
// started, each after the one before: first for the weights of all that start together,
// later for what the first batches have claimed.
var hugePagePasses = [...]time.Duration{time.Second, 10 * time.Second, 100 * time.Second}

// instanceStarted begins the passes anew.
func (h *hugePages) instanceStarted() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = 0
	if h.timer == nil {
		h.timer = time.AfterFunc(hugePagePasses[0], h.pass)
		return
	}
	h.timer.Reset(hugePagePasses[0])
}

func (h *hugePages) pass() {
	begin := time.Now()
	n, err := collapse()
	h.log.Debug("moved memory into huge pages", "bytes", n, "err", err, "after", time.Since(begin).Round(time.Millisecond))
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done++; h.done < len(hugePagePasses) {
		h.timer.Reset(hugePagePasses[h.done])
	}
}
