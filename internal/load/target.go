package load

import (
	"context"

	"shoal/internal/client"
)

// HTTP is a target that posts one prepared request over HTTP.
type HTTP struct{ fixed }

// NewHTTP returns a target that posts body to path at address ("host:port").
// NewHTTP adds Host and Content-Length to the header. Check gets the body of
// each caller's first answer and must not keep it; it may be nil.
func NewHTTP(address, path string, header []client.Header, body []byte, check func(body []byte) error) *HTTP {
	l := NewHTTPLink(address, nil)
	return &HTTP{fixed{l, l.Message(path, header, body), check}}
}

// GRPC is a target that calls ModelInfer with one prepared message.
type GRPC struct{ fixed }

// NewGRPC returns a target that sends request, an encoded ModelInferRequest, to
// address ("host:port"). Check gets the encoded ModelInferResponse of each
// caller's first answer and must not keep it; it may be nil.
func NewGRPC(address string, request []byte, check func(message []byte) error) *GRPC {
	l := NewGRPCLink(address)
	return &GRPC{fixed{l, l.Message(request), check}}
}

// H2 is a target that calls ModelInfer with one prepared message as [H2Link]
// does.
type H2 struct{ fixed }

// NewH2 is [NewGRPC] without grpc-go, for load that must use little CPU.
func NewH2(address string, request []byte, check func(message []byte) error) (*H2, error) {
	l := NewH2Link(address, H2Options{})
	m, err := l.Message(request)
	if err != nil {
		return nil, err
	}
	return &H2{fixed{l, m, check}}, nil
}

// A fixed target sends the same message over and over.
type fixed struct {
	link    Link
	message *Message
	check   func([]byte) error
}

// Open makes n callers. They connect with their first request.
func (t *fixed) Open(_ context.Context, n int) ([]Caller, error) {
	conns, err := t.link.Conns(n)
	if err != nil {
		return nil, err
	}
	callers := make([]Caller, n)
	for i, c := range conns {
		callers[i] = &fixedCaller{target: t, conn: c}
	}
	return callers, nil
}

type fixedCaller struct {
	target *fixed
	conn   Conn
	x      Exchange
}

// First makes one request and checks the answer.
func (c *fixedCaller) First(ctx context.Context) error {
	x := Exchange{Keep: true}
	if err := c.conn.Do(ctx, c.target.message, &x); err != nil {
		return err
	}
	if c.target.check == nil {
		return nil
	}
	return c.target.check(x.Answer)
}

// Do makes one request and discards the answer.
func (c *fixedCaller) Do(ctx context.Context) error { return c.conn.Do(ctx, c.target.message, &c.x) }

// Close ends the caller's connection.
func (c *fixedCaller) Close() error { return c.conn.Close() }
