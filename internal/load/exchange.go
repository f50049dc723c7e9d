package load

import (
	"context"
	"time"

	"google.golang.org/grpc/mem"

	"shoal/internal/client"
)

// epoch is the zero of [Now]. The difference of two such times costs half as
// much as with time.Time, and every request takes four times.
var epoch = time.Now()

// Now returns the time since the start of the process, by the monotonic clock.
func Now() time.Duration { return time.Since(epoch) }

// At returns the wall-clock time of a time that Now returned.
func At(now time.Duration) time.Time { return epoch.Add(now) }

// A Message is a request that was encoded in advance for one kind of link. Any
// number of connections may send it, concurrently and repeatedly.
type Message struct {
	wire   []byte     // HTTP: the whole request, head and body
	buffer mem.Buffer // gRPC: the encoded message

	hole  int    // HTTP: offset of the space for a sequence; 0: there is none
	plain []byte // gRPC: the message before compression; nil: there is none
}

// A Link connects to a server. It makes connections and the messages that they
// send.
type Link interface {
	// Conns returns n connections, which connect when they are first used.
	Conns(n int) ([]Conn, error)
}

// A Conn makes one exchange at a time.
type Conn interface {
	// Connect connects ahead of the first exchange.
	Connect(ctx context.Context) error
	// Do sends m, reads the whole answer and stores the times of both in x. If
	// an error or the server ended the connection, Do connects again.
	Do(ctx context.Context, m *Message, x *Exchange) error
	// PollIdle reads from a connection that may have been idle for long. It
	// notices that the server closed it, or wants to. It may be called while Do
	// runs, and then does nothing.
	PollIdle()
	// Close ends the connection; a second call does nothing. It may be called
	// while Do runs, which then returns an error soon. Connections that were
	// made together may share a network connection, so they are closed
	// together.
	Close() error
}

// An Exchange is one request and its answer. It is overwritten when it is used
// again.
type Exchange struct {
	// Keep asks for the answer's bytes, in Answer: an HTTP body, or an encoded
	// message. On a stream it is the last answer that is not empty.
	Keep   bool
	Answer []byte
	// Sequence is the request's position in a sequence; it stays until it is
	// changed.
	Sequence client.Sequence
	// Arrived, unless nil, is called for each answer on a stream.
	Arrived func()

	// The times, as Now returns them, at which the exchange began, the request
	// was written, the answer began, and it was complete. Those not reached are
	// zero.
	Start, Sent, First, Done time.Duration
	// Arrivals has the time of each answer on a stream; nil outside streams.
	Arrivals []time.Duration
}

// begin makes x ready for another exchange.
func (x *Exchange) begin() {
	*x = Exchange{Keep: x.Keep, Sequence: x.Sequence, Arrived: x.Arrived, Answer: x.Answer[:0], Arrivals: x.Arrivals[:0], Start: Now()}
}
