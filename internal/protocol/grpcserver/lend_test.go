package grpcserver

import (
	"bytes"
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"shoal/internal/inflight"
)

// A loan is an answer that lends n bytes, until they are given back.
type loan struct {
	data     []byte
	mu       sync.Mutex
	returned int
	sent     chan struct{} // buffered: the answer is done with
}

func newLoan(n int) *loan {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return &loan{data: data, sent: make(chan struct{}, 1)}
}

// head returns what stands before the bytes in a message.
func (l *loan) head() []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.BytesType), uint64(len(l.data)))
}

func (l *loan) Lends() bool { return true }

func (l *loan) Sent() { l.sent <- struct{}{} }

func (l *loan) Get(int) *[]byte { panic("it has no memory") }

// Put takes the bytes back, which are then somebody else's.
func (l *loan) Put(b *[]byte) {
	clear(*b)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.returned++
}

func (l *loan) times() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.returned
}

// await waits until the bytes were given back, once.
func (l *loan) await(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(testTimeout); l.times() == 0; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("the memory was not given back")
		}
	}
	if n := l.times(); n != 1 {
		t.Errorf("the memory was given back %d times, want once", n)
	}
}

// awaitSent waits until the answer was done with.
func (l *loan) awaitSent(t *testing.T) {
	t.Helper()
	select {
	case <-l.sent:
	case <-time.After(testTimeout):
		t.Fatal("the answer was not reported as sent")
	}
}

// lendingCodec writes loans.
type lendingCodec struct{ encoding.CodecV2 }

func (c lendingCodec) Marshal(v any) (mem.BufferSlice, error) {
	l, ok := v.(*loan)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	data := l.data
	return mem.BufferSlice{mem.SliceBuffer(l.head()), mem.NewBuffer(&data, l)}, nil
}

// lendServer serves a method Lend that answers with the next of loans.
func lendServer(t *testing.T, memory *inflight.Pool, loans ...*loan) *testServer {
	next := make(chan *loan, len(loans))
	for _, l := range loans {
		next <- l
	}
	lend := func(_ any, _ context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		if err := read(new(wrapperspb.BytesValue)); err != nil {
			return nil, err
		}
		return <-next, nil
	}
	return startWith(t, Options{Memory: memory, Codec: lendingCodec{encoding.GetCodecV2(proto.Name)}}, &grpc.ServiceDesc{
		ServiceName: "test.Lender", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "Lend", Handler: lend}},
	})
}

const lendPath = "/test.Lender/Lend"

// ask sends a call for a loan.
func (c *rawClient) ask(id uint32) {
	c.tb.Helper()
	c.open(id, false, append([]string{":path", lendPath}, withoutPath(usual("Lend"))...)...)
	c.check(c.framer.WriteData(id, true, rawMessage(0)))
}

func withoutPath(pairs []string) []string {
	var rest []string
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] != ":path" {
			rest = append(rest, pairs[i], pairs[i+1])
		}
	}
	return rest
}

// receive reads a stream's message up to the end of the stream, or until so many
// bytes are there.
func (c *rawClient) receive(id uint32, got []byte, most int) []byte {
	c.tb.Helper()
	for len(got) < most {
		f, err := c.framer.ReadFrame()
		c.check(err)
		switch f := f.(type) {
		case *http2.DataFrame:
			got = append(got, f.Data()...)
		case *http2.MetaHeadersFrame:
			if f.StreamEnded() {
				return got
			}
		}
	}
	return got
}

// want compares a message as it came over the wire with the loan that it was.
func (l *loan) want(t *testing.T, got, content []byte) {
	t.Helper()
	want := append(append(prefix(uint32(len(l.head())+len(content))), l.head()...), content...)
	if !bytes.Equal(got, want) {
		t.Errorf("got another message of %d bytes, want one of %d", len(got), len(want))
	}
}

func TestALoanIsWrittenWithoutACopyToAClientThatTakesIt(t *testing.T) {
	const size, calls = 256 << 10, 200
	var loans []*loan
	for range calls {
		loans = append(loans, newLoan(size))
	}
	content := bytes.Clone(loans[0].data)
	memory := inflight.NewPool(inflight.New(1<<30, 0))
	s := lendServer(t, memory, loans...)
	uncopied := 0
	for _, l := range loans {
		memory.Budget().ResetPeak()
		out := new(wrapperspb.BytesValue)
		if err := s.conn.Invoke(testContext(t), lendPath, wrapperspb.Bytes(nil), out); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.GetValue(), content) {
			t.Fatal("got other bytes, want those that were lent")
		}
		l.await(t)
		l.awaitSent(t)
		if memory.Budget().ResetPeak() < size {
			uncopied++
		}
	}
	// The client's windows grow with the first calls, and a busy machine may let
	// a window close at any time.
	if runtime.GOOS == "linux" && uncopied == 0 {
		t.Errorf("all of %d answers were copied, want some that were not", calls)
	}
}

func TestALoanIsGivenBackWhileAClientsWindowIsClosed(t *testing.T) {
	l := newLoan(1 << 20)
	content := bytes.Clone(l.data)
	s := lendServer(t, nil, l)
	c := s.raw(t)
	c.ask(1)
	l.await(t)
	got := c.receive(1, nil, 65535)
	c.check(c.framer.WriteWindowUpdate(0, 2<<20))
	c.check(c.framer.WriteWindowUpdate(1, 2<<20))
	l.want(t, c.receive(1, got, 2<<20), content)
}

func TestALoanIsGivenBackWhileAClientDoesNotRead(t *testing.T) {
	l := newLoan(48 << 20) // more than sockets hold
	content := bytes.Clone(l.data)
	s := lendServer(t, nil, l)
	c := s.raw(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}, http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 20})
	c.check(c.framer.WriteWindowUpdate(0, 1<<30))
	c.ask(1)
	l.await(t)
	l.want(t, c.receive(1, nil, 64<<20), content)
}

func TestLoansOfManyCallsOnOneConnectionArrive(t *testing.T) {
	const calls = 16
	var loans []*loan
	for i := range calls {
		loans = append(loans, newLoan(100<<10+i))
	}
	bySize := make(map[int][]byte)
	for _, l := range loans {
		bySize[len(l.data)] = bytes.Clone(l.data)
	}
	s := lendServer(t, nil, loans...)
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() {
			out := new(wrapperspb.BytesValue)
			if err := s.conn.Invoke(testContext(t), lendPath, wrapperspb.Bytes(nil), out); err != nil {
				t.Error(err)
				return
			}
			if got := out.GetValue(); !bytes.Equal(got, bySize[len(got)]) {
				t.Errorf("got %d other bytes, want those that were lent", len(got))
			}
		})
	}
	wg.Wait()
	for _, l := range loans {
		l.await(t)
		l.awaitSent(t)
	}
}

func TestALoanIsGivenBackWhenTheCallIsOver(t *testing.T) {
	for name, end := range map[string]func(c *rawClient){
		"reset":  func(c *rawClient) { c.check(c.framer.WriteRSTStream(1, http2.ErrCodeCancel)) },
		"hangup": func(c *rawClient) { _ = c.conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoan(1 << 20)
			s := lendServer(t, nil, l)
			c := s.raw(t)
			c.ask(1)
			end(c)
			l.await(t)
			l.awaitSent(t)
		})
	}
}

func TestACompressedLoanIsGivenBack(t *testing.T) {
	l := newLoan(1 << 20)
	content := bytes.Clone(l.data)
	s := lendServer(t, nil, l)
	out := new(wrapperspb.BytesValue)
	if err := s.conn.Invoke(testContext(t), lendPath, wrapperspb.Bytes(nil), out, grpc.UseCompressor("gzip")); err != nil {
		t.Fatal(err)
	}
	l.await(t)
	l.awaitSent(t)
	if !bytes.Equal(out.GetValue(), content) {
		t.Error("got other bytes, want those that were lent")
	}
}

func TestALoanThatIsTooLargeToSendIsGivenBack(t *testing.T) {
	l := newLoan(65 << 20)
	s := lendServer(t, nil, l)
	err := s.conn.Invoke(testContext(t), lendPath, wrapperspb.Bytes(nil), new(wrapperspb.BytesValue))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v, want ResourceExhausted", err)
	}
	l.await(t)
	l.awaitSent(t)
}
