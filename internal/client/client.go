// Package client is the client side of the v2 protocol, over HTTP or gRPC. It
// asks a server for its own and its models' metadata, and encodes infer
// requests from typed tensors. The perf command is built on it.
//
// An [API] asks a server about itself; it is not for load. It is safe for
// concurrent use between [OpenHTTP] or [OpenGRPC] and Close. [EncodeHTTP] and
// [EncodeGRPC] encode a request once, for a load generator to send many times.
package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"shoal/internal/model/modelpb"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
)

// An API asks a server about itself. An empty version means the newest; for
// statistics it means all versions. Errors have the server's own text if there
// is one.
type API interface {
	// Server returns the server's name, version and extensions.
	Server(ctx context.Context) (*pb.ServerMetadataResponse, error)
	// Model returns a model's inputs and outputs.
	Model(ctx context.Context, name, version string) (*pb.ModelMetadataResponse, error)
	// Config returns a model's configuration.
	Config(ctx context.Context, name, version string) (*modelpb.ModelConfig, error)
	// Statistics returns what the server has counted for a model, by version.
	Statistics(ctx context.Context, name, version string) ([]*pb.ModelStatistics, error)
	// Names returns the names of the models in the server's repository.
	Names(ctx context.Context) ([]string, error)
	// Register registers the shared memory with that key under a name;
	// Unregister removes it.
	Register(ctx context.Context, name, key string, size int) error
	Unregister(ctx context.Context, name string) error
	// Trace changes the server's trace settings.
	Trace(ctx context.Context, settings map[string]string) error
	// Close ends the connections.
	Close() error
}

// ErrUnreachable is wrapped by errors of connecting to a server.
var ErrUnreachable = errors.New("the server cannot be reached")

// ErrBroken is wrapped by errors of a connection that was made but brought no
// answer: the server is gone, or speaks another protocol.
var ErrBroken = errors.New("the connection broke")

// Options are what both protocols share.
type Options struct {
	Address string      // host:port, or unix: and the path of a socket
	TLS     *tls.Config // nil: no TLS
	Header  []Header    // sent with every request
}

// A Header is an HTTP header, or gRPC metadata.
type Header struct{ Name, Value string }

// ParseHeader reads "Name: value", as curl and perf_analyzer write it.
func ParseHeader(line string) (Header, error) {
	name, value, ok := strings.Cut(line, ":")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !ok || !token(name) {
		return Header{}, fmt.Errorf("%q is not a header; want Name: value", line)
	}
	if strings.ContainsAny(value, "\r\n\x00") {
		return Header{}, fmt.Errorf("the value of header %s has a line break in it", name)
	}
	return Header{name, value}, nil
}

// token says whether s may be the name of a header.
func token(s string) bool {
	const others = "!#$%&'*+-.^_`|~"
	for _, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return s != ""
}

// An Address is where a server is and whether it uses TLS.
type Address struct {
	Host   string // host:port, or unix: and the path of a socket
	Prefix string // in front of every HTTP path, without a slash at the end
	TLS    bool
}

// unixPrefix begins the address of a Unix socket.
const unixPrefix = "unix:"

// Dial connects to an address as in Address.Host.
func Dial(ctx context.Context, address string) (net.Conn, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		network, address = "unix", path
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// HostOf returns the name of an address for headers and certificates: that of this
// machine for a Unix socket.
func HostOf(address string) string {
	if strings.HasPrefix(address, unixPrefix) {
		return "localhost"
	}
	return address
}

// Target returns an address for grpc.NewClient.
func Target(address string) string {
	if strings.HasPrefix(address, unixPrefix) {
		return address
	}
	return "passthrough:///" + address
}

// ParseAddress reads host:port, a URL with http or https, or unix:///path of a
// socket. The default port is port.
func ParseAddress(s string, port int) (Address, error) {
	a := Address{}
	if path, ok := strings.CutPrefix(s, unixPrefix); ok {
		if path = strings.TrimPrefix(path, "//"); path == "" {
			return a, fmt.Errorf("%q is not a socket; want unix:///path", s)
		}
		return Address{Host: unixPrefix + path}, nil
	}
	rest := s
	if scheme, after, ok := strings.Cut(s, "://"); ok {
		rest = after
		switch strings.ToLower(scheme) {
		case "http", "grpc":
		case "https", "grpcs":
			a.TLS = true
		default:
			return Address{}, fmt.Errorf("%q: scheme %q is not known; use host:port, http://, https:// or unix:///path", s, scheme)
		}
	}
	host, path, _ := strings.Cut(rest, "/")
	if path = strings.Trim(path, "/"); path != "" {
		a.Prefix = "/" + path
	}
	if host == "" || strings.ContainsAny(rest, " \t\r\n?#@") {
		return Address{}, fmt.Errorf("%q is not an address; want host:port", s)
	}
	a.Host = withPort(host, port)
	return a, nil
}

// withPort adds the port to a host that has none.
func withPort(host string, port int) string {
	bare := strings.HasSuffix(host, "]") // an IPv6 address without a port
	if !bare && strings.Contains(host, ":") {
		return host
	}
	return fmt.Sprintf("%s:%d", host, port)
}
