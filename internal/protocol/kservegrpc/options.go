package kservegrpc

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"regexp"

	"shoal/internal/protocol/grpcserver"
	"shoal/internal/protocol/kserve"
)

// Options are the settings of a server. The zero value of each means its
// default.
type Options struct {
	// Server has the settings of gRPC itself. By default a message has up to
	// 2147483647 bytes, the most that clients accept, decompressed up to 64 MiB
	// and 100 times its size; there may be 16384 connections and 10000 calls in
	// flight on each. Codec, Permit, Interceptor and Credentials must not be
	// set.
	Server grpcserver.Options
	// StreamInFlight bounds the requests in flight on one ModelStreamInfer
	// call; the next is not read before one is answered. The default is 1024: a
	// single stream should fill a model's batch.
	StreamInFlight int
	TLS            *tls.Config // nil for connections without TLS
	// Compression is the compression level of inference responses, for clients
	// that accept compression. It applies to all servers of the process.
	Compression Compression
	// Restrictions close APIs to calls without the metadata
	// "triton-grpc-protocol-<Header>" of the right value.
	Restrictions kserve.Restrictions
	// ForwardHeaders matches the names of the metadata that become parameters
	// of the model; nil forwards none.
	ForwardHeaders *regexp.Regexp
}

// Compression is a compression level.
type Compression int

// The levels.
const (
	CompressNone Compression = iota
	CompressLow
	CompressMedium
	CompressHigh
)

// ParseCompression returns the level of that name: none, low, medium or high.
func ParseCompression(s string) (Compression, error) {
	for i, name := range [...]string{"none", "low", "medium", "high"} {
		if s == name {
			return Compression(i), nil
		}
	}
	return 0, fmt.Errorf("compression level %q: want none, low, medium or high", s)
}

// withDefaults returns the options with defaults filled in, except the
// transport's own.
func (o Options) withDefaults() Options {
	o.StreamInFlight = cmp.Or(o.StreamInFlight, 1024)
	t := &o.Server
	t.MaxReceive = cmp.Or(t.MaxReceive, math.MaxInt32)
	t.MaxSend = cmp.Or(t.MaxSend, math.MaxInt32)
	t.MaxUnpacked = cmp.Or(t.MaxUnpacked, 64<<20)
	t.MaxRatio = cmp.Or(t.MaxRatio, 100)
	t.MaxConnections = cmp.Or(t.MaxConnections, 16384)
	t.MaxStreams = cmp.Or(t.MaxStreams, 10_000)
	t.Log = cmp.Or(t.Log, slog.New(slog.DiscardHandler))
	return o
}
