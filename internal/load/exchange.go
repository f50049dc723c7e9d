package load

import (
	"context"
	"time"

	"google.golang.org/grpc/mem"

	"shoal/internal/client"
)

// epoch is what [Now] counts from. A difference of two such times costs half of
// what two time.Time do, on a path where every request takes four of them.
var epoch = time.Now()

// Now returns the time since the start of the process, by the monotonic clock.
func Now() time.Duration { return time.Since(epoch) }

// At returns the time of day of something that Now said.
func At(now time.Duration) time.Time { return epoch.Add(now) }

// A Message is a request that was encoded beforehand for one kind of link. Any
// number of connections may send it, at once and again.
type Message struct {
	wire   []byte     // HTTP: the whole request, head and body
	buffer mem.Buffer // gRPC: the encoded message

	hole  int    // HTTP: where wire has room for a sequence; 0: it has none
	plain []byte // gRPC: the message before compression; nil: there is none
}

// A Link knows how to reach a server. It makes connections and the messages that
// they send.
type Link interface {
	// Conns returns n connections, which connect when they are first used.
	Conns(n int) ([]Conn, error)
}

// A Conn makes one exchange at a time.
type Conn interface {
	// Connect connects ahead of the first exchange.
	Connect(ctx context.Context) error
	// Do sends m, reads the whole answer and says in x what happened when. It
	// connects again when an error or the server ended the connection.
	Do(ctx context.Context, m *Message, x *Exchange) error
	// Tend looks after a connection that may have been idle for long: it hears
	// that the server closed it, or wants to. It may be called while Do runs,
	// and then does nothing.
	Tend()
	// Close ends the connection; a second call does nothing. It may be called
	// while Do runs, which then returns an error soon. Connections that were made
	// together may share what they stand on, so they are closed together.
	Close() error
}

// An Exchange is one request and its answer. One that is used again is
// overwritten.
type Exchange struct {
	// Keep asks for the answer's bytes, in Answer: an HTTP body, or an encoded
	// message. Of several answers on a stream it is the last that says something.
	Keep   bool
	Answer []byte
	// Sequence says which sequence of requests this one is part of; it stays
	// until it is changed.
	Sequence client.Sequence
	// Arrived, unless nil, is told of each answer on a stream.
	Arrived func()

	// When the exchange began, the request was written, the answer began, and it
	// was complete, as Now says it. Those not reached are zero.
	Start, Sent, First, Done time.Duration
	// Arrivals has the time of each answer on a stream; nil where there is one.
	Arrivals []time.Duration
}

// begin makes x ready for another exchange.
func (x *Exchange) begin() {
	*x = Exchange{Keep: x.Keep, Sequence: x.Sequence, Arrived: x.Arrived, Answer: x.Answer[:0], Arrivals: x.Arrivals[:0], Start: Now()}
}
