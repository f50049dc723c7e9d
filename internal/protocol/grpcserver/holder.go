package grpcserver

import "shoal/internal/reject"

// Waiting implements inflight.Holder. Calls with a stream of messages count as
// waiting: they may never send one. Arriving messages do not count while the
// reader waits for memory: that is not the client's fault.
func (c *conn) Waiting() (bytes, moved int64) {
	c.mu.Lock()
	bytes = c.unsent + int64(c.out.size) + c.streamed
	if c.in.waiting.Load() != readerBusy {
		bytes += c.arriving
	}
	c.mu.Unlock()
	return bytes, c.in.total.Load() + c.written.Load()
}

// Evict implements inflight.Holder.
func (c *conn) Evict() {
	c.server.opt.Rejects.Closed(reject.GRPC, reject.MaxMemory, c.nc.RemoteAddr(), "memory was short and the client slow")
	go c.end() // it may block on a write
}
