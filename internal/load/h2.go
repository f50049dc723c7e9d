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
	"shoal/internal/client"
	"shoal/internal/protocol/h2"
	"shoal/internal/protocol/kservegrpc/inferencepb"
)

// H2Options are the settings of a link over HTTP/2.
type H2Options struct {
	TLS *tls.Config // nil: none
	// Header is sent with each call; names are in lower case.
	Header []hpack.HeaderField
	// Compression is "gzip", "deflate" or empty.
	Compression string
	// Stream sends requests over ModelStreamInfer, one stream per connection,
	// instead of ModelInfer. With Decoupled a request ends with the answer that
	// is marked as final; otherwise each request has one answer.
	Stream, Decoupled bool
}

// An H2Link calls the inference service over its own gRPC client. Each
// connection has one call at a time, so that a request is one write, its answer
// is hardly more than one read, and no other goroutine runs. It takes a third
// of grpc-go's CPU, which is better left to the server.
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

// prefixSize is the size of gRPC's message prefix: a compression flag and the
// length.
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

// maxUnpacked bounds a decompressed answer.
const maxUnpacked = 1 << 31

// decompress reverses compress.
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

// header returns the header fields of a call.
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
		{Name: ":authority", Value: client.HostOf(l.address)},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "user-agent", Value: "shoal-perf"},
		{Name: "te", Value: "trailers"},
	}
	if by := l.options.Compression; by != "" {
		list = append(list, hpack.HeaderField{Name: "grpc-encoding", Value: by}, hpack.HeaderField{Name: "grpc-accept-encoding", Value: by})
	}
	return append(list, l.options.Header...)
}

// maxStreamID is the last stream that a connection can have.
const maxStreamID = 1<<31 - 1

// appendHello appends a client's preface: no pushes, and windows so large that
// answers need no window updates.
func appendHello(b []byte) []byte {
	b = h2.AppendSettings(append(b, http2.ClientPreface...), []http2.Setting{
		{ID: http2.SettingEnablePush, Val: 0}, {ID: http2.SettingInitialWindowSize, Val: h2.MaxWindow},
	})
	return h2.AppendNumber(b, http2.FrameWindowUpdate, 0, h2.MaxWindow-h2.DefaultWindow)
}

// An h2Conn makes one call at a time over its connection. Only the goroutine
// that makes its exchanges uses its state.
type h2Conn struct {
	link *H2Link
	head []byte        // of a message with a sequence
	use  sync.Mutex    // held by an exchange
	last time.Duration // when it ended
	h2State
	lazyConn
}

// An h2State is the state of the current connection.
type h2State struct {
	out     []byte // frames that wait to be written
	in      []byte // in[from:to] was read and not yet parsed
	from    int
	to      int
	encoder *hpack.Encoder
	block   bytes.Buffer
	first   []byte // the header of the next call, which fills the HPACK table; nil: it is full
	later   []byte // the header of all other calls, which refers to the table
	decoder *hpack.Decoder

	stream    uint32 // of the current call; 0: none is open
	lastID    uint32
	frame     int   // the largest frame that the server accepts
	initial   int64 // the window that new streams get
	window    int64 // what may be sent over the connection
	streamWin int64 // what may be sent over the stream
	received  int64 // over the connection since the last window update
	streamed  int64 // the same for the stream
	leaving   bool  // the server accepts no further calls

	answer h2Answer
}

// An h2Answer is what has been received for the current call.
type h2Answer struct {
	header  []byte // an incomplete header block
	ends    bool   // it ends the stream
	prefix  [prefixSize]byte
	have    int   // bytes of the prefix
	left    int64 // bytes of the message that are still to come
	message []byte
	whole   bool // a message is complete
	keep    bool // messages are wanted

	status string // HTTP's
	packed string // the compression of messages, if any
	code   string // gRPC's
	text   string
	ended  bool

	arrived bool // something was received
}

// content returns the complete message, decompressed. It is valid until the
// next one.
func (a *h2Answer) content() ([]byte, error) {
	if a.prefix[0] == 0 {
		return a.message, nil
	}
	return decompress(a.packed, a.message)
}

// reset prepares a for another call and keeps its memory.
func (a *h2Answer) reset() { *a = h2Answer{header: a.header[:0], message: a.message[:0]} }
