package httpserver

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"math"
	"time"

	"shoal/internal/accesslog"
	"shoal/internal/inflight"
	"shoal/internal/reject"
)

// Options are the settings of a server. The zero value of a limit means the
// default that its comment names.
type Options struct {
	// MaxBodySize is the most bytes of a request's body; 2 GiB - 1, and no more
	// than that.
	MaxBodySize int64
	// MaxRatio is how many times its compressed size a body may have, from 16
	// MiB on; 100.
	MaxRatio int64
	// Memory provides memory for requests and answers and bounds it; by default
	// there is no bound.
	Memory *inflight.Pool
	// MaxHeaderSize is the most bytes of a request's line and headers; 16 KiB.
	// Every connection holds that much memory.
	MaxHeaderSize int
	// MaxConnections is how many clients may be connected at once; 16384.
	MaxConnections int
	// Limit, when it is not nil, takes the place of MaxConnections: servers that
	// have the same one share it.
	Limit *Limit

	// SayKeepAlive adds a header Connection to every answer.
	SayKeepAlive bool
	// AnswerAll answers also what is no HTTP at all.
	AnswerAll bool
	// NoHost accepts requests of HTTP/1.1 without the header Host.
	NoHost bool
	// KeepTooLarge keeps the connection of a request whose body is over the limit,
	// if the body comes soon and is not much too large.
	KeepTooLarge bool

	// IdleTimeout ends a connection that waits for a request; 5 minutes.
	IdleTimeout time.Duration
	// HeaderTimeout is how long a request's headers may take to arrive; 10 s.
	HeaderTimeout time.Duration
	// StallTimeout ends a request whose body, or whose answer, makes no
	// progress; 30 s.
	StallTimeout time.Duration

	// TLS, when it is not nil, secures the connections.
	TLS *tls.Config

	// Rejects counts what the server turns away; nil counts nothing.
	Rejects *reject.Counter
	// Access gets an entry for each request; nil for none.
	Access *accesslog.Log
	Log    *slog.Logger

	// ProbeAfter is how long a client that sends no more may have to wait before
	// it is sent an interim response; 100 ms. Answers that come sooner are not
	// preceded by anything.
	ProbeAfter time.Duration
}

// ConnMemory returns what a connection takes besides its requests. It counts
// against the budget and is never refused: whoever serves bounds the connections
// by it.
func (o *Options) ConnMemory() int64 {
	n := int64(cmp.Or(o.MaxHeaderSize, 16<<10)) + 16<<10
	if o.TLS != nil {
		n += 32 << 10 // a record in each direction
	}
	return n
}

// WithDefaults fills in what is zero.
func (o Options) WithDefaults() Options {
	o.MaxBodySize = min(cmp.Or(o.MaxBodySize, math.MaxInt32), math.MaxInt32)
	o.MaxRatio = cmp.Or(o.MaxRatio, 100)
	o.MaxHeaderSize = cmp.Or(o.MaxHeaderSize, 16<<10)
	if o.Limit == nil {
		o.Limit = NewLimit(cmp.Or(o.MaxConnections, 16384))
	}
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 5*time.Minute)
	o.HeaderTimeout = cmp.Or(o.HeaderTimeout, 10*time.Second)
	o.StallTimeout = cmp.Or(o.StallTimeout, 30*time.Second)
	o.ProbeAfter = cmp.Or(o.ProbeAfter, 100*time.Millisecond)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o
}
