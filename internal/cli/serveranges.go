package cli

import (
	"fmt"
	"math"
)

// A numberRange is the range of values that a flag accepts.
type numberRange struct {
	flag               string
	value, least, most int64
}

// ranges returns the ranges of the serve command, with the given values.
func (f *serveFlags) ranges() []numberRange {
	const port, whole = math.MaxUint16, math.MaxInt32
	h, g := &f.http, &f.grpc
	return []numberRange{
		{"http-port", int64(h.port), 0, port},
		{"grpc-port", int64(g.port), 0, port},
		{"metrics-port", int64(f.metrics.port), 0, port},
		{"model-load-thread-count", int64(f.loadThreads), 0, whole},
		{"model-load-retry-count", int64(f.loadRetries), 0, whole},
		{"repository-poll-secs", int64(f.control.pollSeconds), 1, whole},
		{"max-inflight-bytes", f.memory.inFlight, 0, math.MaxInt64},
		{"max-inflight-wait-ms", int64(f.memory.wait), 1, whole},
		{"grpc-max-decompressed-size", f.memory.decompressed, 1, math.MaxInt64},
		{"max-decompression-ratio", int64(f.memory.ratio), 1, whole},
		{"response-queue-size", f.responseQueue, 1, math.MaxInt64},
		{"client-shm-max-regions", int64(f.maxRegions), 0, whole},
		{"http-max-input-size", h.maxInput, 1, math.MaxInt64},
		{"http-max-body-size", h.maxBody, 1, whole},
		{"http-max-header-size", int64(h.maxHeader), 1, whole},
		{"http-max-connections", int64(h.maxConnections), 1, whole},
		{"http-header-timeout-secs", int64(h.headerTimeout), 1, whole},
		{"http-body-timeout-secs", int64(h.bodyTimeout), 1, whole},
		{"http-idle-timeout-secs", int64(h.idleTimeout), 1, whole},
		{"grpc-max-message-size", int64(g.maxMessage), 1, whole},
		{"grpc-max-connections", int64(g.maxConnections), 1, whole},
		{"grpc-max-concurrent-streams", int64(g.maxStreams), 1, whole},
		{"grpc-header-timeout-secs", int64(g.headerTimeout), 1, whole},
		{"grpc-message-timeout-secs", int64(g.messageTimeout), 1, whole},
		{"grpc-keepalive-time", int64(g.keepalive), 1, whole},
		{"grpc-keepalive-timeout", int64(g.keepaliveWait), 1, whole},
		{"grpc-http2-min-recv-ping-interval-without-data", int64(g.minPing), 0, whole},
		{"grpc-max-connection-age", int64(g.maxAge), 0, whole},
		{"grpc-max-connection-age-grace", int64(g.maxAgeGrace), 0, whole},
		{"session-max-sessions", int64(f.sessions.maxSessions), 1, whole},
		{"session-max-bytes", f.sessions.maxBytes, 1 << 17, math.MaxInt64},
		{"exit-timeout-secs", int64(f.exitTimeout), 0, whole},
		{"pre-stop-delay-secs", int64(f.preStop), 0, whole},
		{"stop-with-process", int64(f.stopWith), 0, whole},
	}
}

func (r numberRange) check() error {
	switch {
	case r.value >= r.least && r.value <= r.most:
		return nil
	case r.most == math.MaxInt64:
		return fmt.Errorf("--%s is %d, want %d or more", r.flag, r.value, r.least)
	}
	return fmt.Errorf("--%s is %d, want %d to %d", r.flag, r.value, r.least, r.most)
}
