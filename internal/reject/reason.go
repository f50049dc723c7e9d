// Package reject counts and logs what the server rejects: requests that did not
// reach a model, and connections that a limit closed. The protocols report both
// to a Counter, the metrics endpoint reads it.
package reject

import "errors"

// A Protocol is the client's protocol.
type Protocol uint8

// The protocols.
const (
	HTTP Protocol = iota
	GRPC
	Session // over shared memory
	ProtocolCount
)

// String returns the protocol's name in metrics and logs.
func (p Protocol) String() string { return [...]string{"http", "grpc", "session"}[p] }

// A Reason is why a request was rejected. The zero value means that it was not:
// it succeeded, or failed after it reached a scheduler, which other metrics
// count.
type Reason uint8

// The reasons. Each is one value of the label "reason", so the list stays short.
const (
	None            Reason = iota
	Malformed              // invalid HTTP, HTTP/2, JSON, protobuf or gzip
	UnknownRoute           // a path, HTTP method or gRPC method that does not exist
	UnknownModel           // a model or version that does not exist
	NotReady               // a model that is not loaded, or a server that starts or stops
	BadInput               // tensors that do not fit the model: name, type, shape, size, parameters
	Unsupported            // something that this model or server cannot do over this protocol
	TooLarge               // more bytes than a limit allows
	Restricted             // an API that needs a header which is missing or wrong
	Unauthenticated        // a TLS handshake that failed
	Overloaded             // the server is at a limit: connections, memory for requests
	Timeout                // the client sent, or took its answer, too slowly
	ReasonCount
)

var reasonNames = [ReasonCount]string{
	None:            "none",
	Malformed:       "malformed",
	UnknownRoute:    "unknown_route",
	UnknownModel:    "unknown_model",
	NotReady:        "not_ready",
	BadInput:        "bad_input",
	Unsupported:     "unsupported",
	TooLarge:        "too_large",
	Restricted:      "restricted",
	Unauthenticated: "unauthenticated",
	Overloaded:      "overloaded",
	Timeout:         "timeout",
}

// PerModel reports whether a request for a model that is ready can be rejected
// for this reason, so that its series begins at zero.
func (r Reason) PerModel() bool {
	switch r {
	case None, UnknownRoute, UnknownModel, Unauthenticated:
		return false
	}
	return true
}

// String returns the reason's name in metrics and logs.
func (r Reason) String() string { return reasonNames[r] }

// ReasonOf returns the reason of the first error in err's chain that has one,
// None when there is none. An error has a reason if it has a method Rejection()
// Reason.
func ReasonOf(err error) Reason {
	for ; err != nil; err = errors.Unwrap(err) {
		if e, ok := err.(interface{ Rejection() Reason }); ok && e.Rejection() != None {
			return e.Rejection()
		}
	}
	return None
}

// A Close is why the server closed a connection.
type Close uint8

// Why connections are closed. Each is one value of the label "reason".
const (
	MaxConnections   Close = iota // the limit was reached
	MaxMemory                     // memory was short, and a slow client used much of it
	Evicted                       // another took its place while no request was in flight
	IdleTimeout                   // no request came
	HandshakeTimeout              // TLS or the first frames of HTTP/2 took too long
	ReadTimeout                   // a request arrived too slowly
	WriteTimeout                  // the client did not read its answers
	KeepaliveTimeout              // the client did not answer a ping
	TooManyPings                  // the client pinged too often
	TooMuchWork                   // too many control frames for the calls on the connection
	CloseCount
)

// closes has the name of each, and the reason under which the request that the
// client would have sent counts as rejected: None when there was none, or when
// it is reported elsewhere.
var closes = [CloseCount]struct {
	name   string
	reason Reason
}{
	MaxConnections:   {"max_connections", Overloaded},
	MaxMemory:        {"max_memory", None},
	Evicted:          {"evicted", None},
	IdleTimeout:      {"idle_timeout", None},
	HandshakeTimeout: {"handshake_timeout", Timeout},
	ReadTimeout:      {"read_timeout", None},
	WriteTimeout:     {"write_timeout", None},
	KeepaliveTimeout: {"keepalive_timeout", None},
	TooManyPings:     {"too_many_pings", None},
	TooMuchWork:      {"too_much_work", None},
}

// String returns the name in metrics and logs.
func (c Close) String() string { return closes[c].name }
