package cli

import (
	"os"
	"time"

	"shoal/internal/cli/command"
	"shoal/internal/inflight"
)

// memoryFlags bound the memory that clients can claim.
type memoryFlags struct {
	inFlight     int64
	wait         int
	decompressed int64
	ratio        int
}

func (m *memoryFlags) add(g *command.Group) {
	g.Size(&m.inFlight, "max-inflight-bytes", 0, "most `bytes` of requests and answers in flight, over all protocols; 0 is half of the memory that the process may use")
	g.Number(&m.wait, "max-inflight-wait-ms", 1000, "how many `milliseconds` a request waits for such memory before it is refused; one that then holds up to 1/64 of it waits three times as long")
	g.Size(&m.decompressed, "grpc-max-decompressed-size", 64<<20, "largest gRPC message after decompression, in `bytes`; HTTP has --http-max-input-size")
	g.Number(&m.ratio, "max-decompression-ratio", 100, "how many `times` larger than it was sent a compressed request may become, from 16 MiB on")
}

// defaultMemory is the budget if the system does not report its memory.
const defaultMemory = 4 << 30

// pool returns the memory that all protocols share.
func (m *memoryFlags) pool() *inflight.Pool {
	limit := m.inFlight
	if limit == 0 {
		limit = defaultMemory
		if n := inflight.SystemMemory(); n > 0 {
			limit = n / 2
		}
	}
	return inflight.NewPool(inflight.New(limit, time.Duration(m.wait)*time.Millisecond))
}

// connections returns how many of the allowed connections there may be if each
// takes each bytes: together at most a quarter of the budget.
func connections(allowed int, each int64, b *inflight.Budget) int {
	return int(min(int64(allowed), max(leastConnections, b.Limit()/4/each)))
}

// leastConnections is allowed even with a tiny budget.
const leastConnections = 16

// memoryLimitVariable is Go's own. If the user sets it, we do not.
const memoryLimitVariable = "GOMEMLIMIT"

// watchMemory keeps the process's memory near the budget until the returned
// function is called.
func watchMemory(b *inflight.Budget, trim func()) func() {
	_, set := os.LookupEnv(memoryLimitVariable)
	r := inflight.StartReclaimer(b, !set, trim)
	return r.Close
}
