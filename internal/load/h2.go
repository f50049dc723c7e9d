package load

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"

	"golang.org/x/net/http2"
	"shoal/internal/protocol/h2"
	"shoal/internal/protocol/kservegrpc/inferencepb"
)

// H2Options are what a link over HTTP/2 may have beyond an address.
type H2Options struct {
	TLS *tls.Config // nil: none
	// Header is sent with each call; names are in lower case.
	Header []hpack.HeaderField
	// Compression is "gzip", "deflate" or empty.
	Compression string
	// Stream sends requests over ModelStreamInfer, a stream for each connection,
	// rather than by ModelInfer. Decoupled waits for the answer that is marked as
	// a request's last; otherwise each request has one answer.
	Stream, Decoupled bool
}

// An H2Link calls the inference service as gRPC does, by hand: each connection of
// ours is one of the network's with one call at a time, so that a request is one
// write and its answer hardly more than one read, without other goroutines. That
// costs a third of grpc-go, which a load generator should rather leave to the
// server.
type H2Link struct {
	address string
	options H2Options
}

// NewH2Link returns a link to address ("host:port").
func NewH2Link(address string, o H2Options) *H2Link { return &H2Link{address, o} }

// Message returns an encoded ModelInferRequest as a message, compressed if the
// link is.
func (l *H2Link) Message(request []byte) (*Message, error) {
	flag, body, err := compress(l.options.Compression, request)
	if err != nil {
		return nil, err
	}
	wire := append(make([]byte, 0, prefixSize+len(body)), flag)
	wire = binary.BigEndian.AppendUint32(wire, uint32(len(body)))
	m := &Message{wire: append(wire, body...)}
	if flag != 0 {
		m.plain = request
	}
	return m, nil
}

// prefixSize is what stands before each message of gRPC: whether it is compressed,
// and its length.
const prefixSize = 5

func compress(by string, data []byte) (flag byte, out []byte, err error) {
	var b bytes.Buffer
	var w io.WriteCloser
	switch by {
	case "":
		return 0, data, nil
	case "gzip":
		w = gzip.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	default:
		return 0, nil, fmt.Errorf("compression %q is not known", by)
	}
	if _, err := w.Write(data); err != nil {
		return 0, nil, err
	}
	err = w.Close()
	return 1, b.Bytes(), err
}

// maxUnpacked bounds what a compressed answer may become.
const maxUnpacked = 1 << 31

// decompress undoes compress.
func decompress(by string, data []byte) ([]byte, error) {
	var r io.Reader
	var err error
	switch by {
	case "gzip":
		r, err = gzip.NewReader(bytes.NewReader(data))
	case "deflate":
		r, err = zlib.NewReader(bytes.NewReader(data))
	default:
		err = fmt.Errorf("compression %q is not known", by)
	}
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(r, maxUnpacked))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: a compressed answer: %w", errProtocol, err)
	}
	return data, nil
}

// Conns returns n connections.
func (l *H2Link) Conns(n int) ([]Conn, error) {
	conns := make([]Conn, n)
	for i := range conns {
		conns[i] = &h2Conn{link: l}
	}
	return conns, nil
}

func (l *H2Link) dial(ctx context.Context) (net.Conn, error) {
	config := l.options.TLS
	if config != nil {
		config = config.Clone()
		config.NextProtos = []string{"h2"}
	}
	return dial(ctx, l.address, config)
}

// header returns the fields of a call.
func (l *H2Link) header() []hpack.HeaderField {
	scheme, path := "http", inferencepb.GRPCInferenceService_ModelInfer_FullMethodName
	if l.options.TLS != nil {
		scheme = "https"
	}
	if l.options.Stream {
		path = inferencepb.GRPCInferenceService_ModelStreamInfer_FullMethodName
	}
	list := []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: scheme},
		{Name: ":path", Value: path},
		{Name: ":authority", Value: l.address},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "user-agent", Value: "shoal-perf"},
		{Name: "te", Value: "trailers"},
	}
	if by := l.options.Compression; by != "" {
		list = append(list, hpack.HeaderField{Name: "grpc-encoding", Value: by}, hpack.HeaderField{Name: "grpc-accept-encoding", Value: by})
	}
	return append(list, l.options.Header...)
}

// maxStreamID is the number of the last call that a connection can have.
const maxStreamID = 1<<31 - 1

// appendHello appends what a client says first: no pushes, and windows so wide
// that answers need no leave.
func appendHello(b []byte) []byte {
	b = h2.AppendSettings(append(b, http2.ClientPreface...), []http2.Setting{
		{ID: http2.SettingEnablePush, Val: 0}, {ID: http2.SettingInitialWindowSize, Val: h2.MaxWindow},
	})
	return h2.AppendNumber(b, http2.FrameWindowUpdate, 0, h2.MaxWindow-h2.DefaultWindow)
}

// An h2Conn makes one call at a time over its line.
// Only the goroutine that makes its exchanges touches its state.
type h2Conn struct {
	link *H2Link
	head []byte        // of a message that is part of a sequence
	use  sync.Mutex    // held by an exchange
	last time.Duration // when it ended
	h2State
	line
}

// An h2State is what is known of the connection at hand.
type h2State struct {
	out     []byte // frames that wait to be written
	in      []byte // what was read and not looked at: in[from:to]
	from    int
	to      int
	encoder *hpack.Encoder
	block   bytes.Buffer
	first   []byte // the header of the next call, which fills the table; nil: it is full
	later   []byte // the header of all others, which refers to it
	decoder *hpack.Decoder

	stream    uint32 // of the call at hand; 0: none is open
	lastID    uint32
	frame     int   // the largest frame that the server takes
	initial   int64 // the window that new streams get
	window    int64 // what may be sent over the connection
	streamWin int64 // what may be sent over the stream
	received  int64 // over the connection since the server was last given leave
	streamed  int64 // the same of the stream
	leaving   bool  // the server wants no further calls

	answer h2Answer
}

// An h2Answer is what has come for the call at hand.
type h2Answer struct {
	header  []byte // a header block that is not yet whole
	ends    bool   // it ends the stream
	prefix  [prefixSize]byte
	have    int   // bytes of the prefix
	left    int64 // bytes of the message that are still to come
	message []byte
	whole   bool // a message is complete
	keep    bool // messages are wanted

	status string // of HTTP
	packed string // how messages are compressed, if they are
	code   string // of gRPC
	text   string
	ended  bool

	arrived bool // something has come
}

// content returns the message that is complete, as it was before compression. It
// is good until the next one.
func (a *h2Answer) content() ([]byte, error) {
	if a.prefix[0] == 0 {
		return a.message, nil
	}
	return decompress(a.packed, a.message)
}

// reset makes a ready for another call, with the memory that it has.
func (a *h2Answer) reset() { *a = h2Answer{header: a.header[:0], message: a.message[:0]} }
