package kservegrpc

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"time"

	"shoal/internal/inflight"
	"shoal/internal/protocol/grpcserver"
	"shoal/internal/protocol/kserve"
	"shoal/internal/reject"
)

// Options are the settings of a server. The zero value of each means its
// default.
type Options struct {
	// MaxMessage bounds a message in either direction, in bytes; the default
	// and the most that clients can take is 2147483647.
	MaxMessage int
	// MaxUnpacked bounds what a compressed message is unpacked to, in bytes,
	// and MaxRatio how many times larger than the message that may be, from
	// 16 MiB on; the defaults are 64 MiB and 100.
	MaxUnpacked, MaxRatio int64
	// Memory lends memory for messages and bounds it; by default there is no
	// bound.
	Memory *inflight.Pool
	// MaxConnections bounds the connections; the default is 16384.
	MaxConnections int
	// MaxStreams bounds the calls in flight on one connection; clients queue
	// what is beyond. The default is 10000.
	MaxStreams uint32
	// StreamInFlight bounds the requests in flight on one ModelStreamInfer
	// call; the next is not read before one is answered. The default is 1024:
	// one stream alone should fill a model's batch.
	StreamInFlight int
	// Workers is how many goroutines are kept ready for calls; a call that
	// finds none gets its own. The default is four per processor.
	Workers int
	// ConnectionTimeout bounds the handshake of a new connection; the default
	// is 20 s.
	ConnectionTimeout time.Duration
	// HeaderTimeout bounds how long the header of a call may take, and
	// MessageTimeout how long a client may pause within a message or not take
	// an answer; the defaults are 10 s and 30 s.
	HeaderTimeout, MessageTimeout time.Duration

	Keepalive Keepalive
	TLS       TLS
	// Compression is how hard responses to inference are compressed for
	// clients that accept it. It holds for all servers of the process.
	Compression Compression
	// Restrictions close APIs to calls without the metadata
	// "triton-grpc-protocol-<Header>" of the right value.
	Restrictions kserve.Restrictions
	// ForwardHeaders matches the names of the metadata that are given to the
	// model as parameters; nil forwards none.
	ForwardHeaders *regexp.Regexp

	// Rejects counts what the server turns away; nil counts nothing.
	Rejects *reject.Counter
	Log     *slog.Logger // nil logs nothing
}

// ConnMemory is what a connection takes besides its calls.
const ConnMemory = grpcserver.ConnMemory

// Keepalive says how connections are kept and ended.
type Keepalive struct {
	// Time is how long a connection may be silent before it is pinged, Timeout
	// how long the answer may take; the defaults are 2 h and 20 s.
	Time, Timeout time.Duration
	// PermitWithoutCalls lets clients ping while no call is in flight.
	PermitWithoutCalls bool
	// MinPingInterval is how often a client may ping; the default is 5 min.
	MinPingInterval time.Duration
	// MaxAge closes a connection of that age, once its calls are done or
	// MaxAgeGrace is over; zero means never.
	MaxAge, MaxAgeGrace time.Duration
}

// Compression is how hard to compress.
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

// withDefaults returns the options with every default filled in.
func (o Options) withDefaults() Options {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	set(&o.ConnectionTimeout, 20*time.Second)
	set(&o.HeaderTimeout, 10*time.Second)
	set(&o.MessageTimeout, 30*time.Second)
	set(&o.Keepalive.Time, 2*time.Hour)
	set(&o.Keepalive.Timeout, 20*time.Second)
	set(&o.Keepalive.MinPingInterval, 5*time.Minute)
	if o.MaxMessage == 0 {
		o.MaxMessage = math.MaxInt32
	}
	o.MaxUnpacked = cmp.Or(o.MaxUnpacked, 64<<20)
	o.MaxRatio = cmp.Or(o.MaxRatio, 100)
	if o.Memory == nil {
		o.Memory = inflight.NewPool(nil)
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = 16384
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = 10_000
	}
	if o.StreamInFlight == 0 {
		o.StreamInFlight = 1024
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}
