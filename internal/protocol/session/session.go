package session

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/bits"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"shoal/internal/engine"
	"shoal/internal/infer"
	"shoal/internal/inflight"
	"shoal/internal/model"
	"shoal/internal/reject"
	"shoal/internal/status"
	"shoal/internal/trace"
)

// A session is one client: its socket, its memory and its calls. Its control
// goroutine reads the socket and gives calls to runners; a runner that has
// answered a call polls for the next one for a moment (calls.go).
type session struct {
	server  *Server
	conn    *net.UnixConn
	raw     syscall.RawConn
	model   string
	version int64
	pid     int
	context context.Context
	cancel  context.CancelFunc
	notify  func(fd uintptr) bool // sends msgAnswers
	done    chan struct{}         // closed when the session ends
	work    chan *slot            // to runners that wait
	wg      sync.WaitGroup        // runners

	client []byte // the client's page
	ours   []byte // the server's page

	waiting atomic.Int32 // runners that wait for work
	skip    atomic.Int32 // how many times not to poll
	misses  atomic.Int32 // polls in a row that found no call

	sending sync.Mutex // of messages with descriptors

	mu    sync.Mutex // protects the fields below
	slots [maxSlots]*slot
	head  uint32 // calls taken from the ring
	over  bool

	memory sync.Mutex // protects the fields below
	bytes  int64      // of shared memory
	claim  inflight.Claim
}

// A slot is the memory for one call at a time. While busy, it is its runner's.
type slot struct {
	number     int
	in, out    []byte
	shared     *infer.Shared // in, for workers that map it; nil when it is small
	generation uint32        // of out
	table      []byte        // a copy of the call's table
	call       uint32        // the client's number of the call
	running    *infer.Caller
	trace      *trace.Trace // nil when the call is not traced

	// Under the session's mutex:
	busy   bool
	caller *infer.Caller // of the call, and until one is cancelled of the next ones
}

// writeTime is how long a client may leave a message unread that the server must
// send.
const writeTime = time.Second

// welcome makes the pages and sends the first message.
func (x *session) welcome(v *engine.Version) (err error) {
	x.context, x.cancel = context.WithCancel(context.Background())
	if x.raw, err = x.conn.SyscallConn(); err != nil {
		return err
	}
	answers := le.AppendUint32(nil, msgAnswers)
	x.notify = func(fd uintptr) bool {
		send(fd, answers)
		return true
	}
	if err := x.grow(2 * pageSize); err != nil {
		return err
	}
	var theirs, ours int
	if x.client, theirs, err = newRegion(pageSize, false); err != nil {
		return err
	}
	defer closeFDs(theirs)
	if x.ours, ours, err = newRegion(pageSize, true); err != nil {
		return err
	}
	defer closeFDs(ours)
	b := le.AppendUint32(nil, msgWelcome)
	b = le.AppendUint32(b, protocolVersion)
	b = le.AppendUint32(b, maxSlots)
	b = le.AppendUint64(b, uint64(x.server.opt.MaxBytes))
	return x.send(append(b, metadata(v)...), theirs, ours)
}

// metadata describes a model to a client, as JSON; only its name when the rest
// would not fit a message.
func metadata(v *engine.Version) []byte {
	type tensor struct {
		Name     string  `json:"name"`
		Datatype string  `json:"datatype"`
		Shape    []int64 `json:"shape"`
	}
	list := func(tensors []model.Tensor) []tensor {
		all := make([]tensor, 0, len(tensors))
		for i := range tensors {
			all = append(all, tensor{tensors[i].Name, tensors[i].Type.String(), tensors[i].Full})
		}
		return all
	}
	sig := v.Signature()
	d := struct {
		Name     string   `json:"name"`
		Version  int64    `json:"version"`
		MaxBatch int      `json:"max_batch_size"`
		Inputs   []tensor `json:"inputs"`
		Outputs  []tensor `json:"outputs"`
	}{sig.Name, v.Number(), sig.MaxBatch, list(sig.Inputs), list(sig.Outputs)}
	b, err := json.Marshal(&d)
	if err != nil || len(b) > maxTable {
		d.Inputs, d.Outputs = nil, nil
		b, _ = json.Marshal(&d) // strings and numbers only
	}
	return b
}

// send sends a message with descriptors. A client that does not read is cut off.
func (x *session) send(b []byte, fds ...int) error {
	x.sending.Lock()
	defer x.sending.Unlock()
	_ = x.conn.SetWriteDeadline(time.Now().Add(writeTime))
	var oob []byte
	if len(fds) > 0 {
		oob = rights(fds...)
	}
	_, _, err := x.conn.WriteMsgUnix(b, oob, nil)
	if err != nil {
		x.fail()
	}
	_ = x.conn.SetWriteDeadline(time.Time{}) // of x.notify
	return err
}

// control handles the client's messages until it is gone.
func (x *session) control() error {
	b := make([]byte, maxMessage)
	for {
		n, err := x.conn.Read(b)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return err
		}
		m, err := parseMessage(b[:n])
		if err != nil {
			return err
		}
		switch m.kind {
		case msgWake:
			x.dispatch()
		case msgRoom:
			err = x.room(m)
		case msgCancel:
			x.cancelCall(m)
		}
		if err != nil {
			return err
		}
	}
}

// room gives a slot memory for the inputs of its calls. A slot's memory only
// grows, and to a power of two, so that a client that asks again and again gets
// twice what it may have at most, even if it keeps the old.
func (x *session) room(m message) error {
	x.mu.Lock()
	sl := x.slots[m.slot]
	if sl == nil {
		sl = &slot{number: int(m.slot)}
	}
	busy := sl.busy
	sl.busy = true
	x.mu.Unlock()
	if busy {
		return errWire
	}
	in, err := x.enlarge(sl, sideIn, m.bytes)
	var out region
	if err == nil && sl.out == nil {
		out, err = x.enlarge(sl, sideOut, minRegion)
	}
	x.mu.Lock()
	sl.busy = false
	if err == nil && x.slots[m.slot] == nil {
		sl.caller = infer.NewCaller(x.context)
		x.slots[m.slot] = sl
	}
	incomplete := x.slots[m.slot] == nil
	x.mu.Unlock()
	// Only now: a client that has its memory may call, and a runner may see the call.
	if err == nil {
		return errors.Join(x.hand(in), x.hand(out))
	}
	in.close()
	if incomplete {
		x.free(sl)
	}
	return x.send(refusal(m.slot, err))
}

// A region is new memory that the client must be told of. The zero region is none.
type region struct {
	message []byte
	fd      int
}

func (r region) close() {
	if r.message != nil {
		closeFDs(r.fd)
	}
}

// hand gives a region to the client.
func (x *session) hand(r region) error {
	if r.message == nil {
		return nil
	}
	defer r.close()
	return x.send(r.message, r.fd)
}

// enlarge gives one side of a slot at least that many bytes, if it has fewer, and
// returns the memory if it is new. Nobody else may use the slot.
func (x *session) enlarge(sl *slot, side uint32, bytes uint64) (region, error) {
	b := &sl.in
	if side == sideOut {
		b = &sl.out
	}
	if bytes <= uint64(len(*b)) {
		return region{}, nil
	}
	if bytes > uint64(x.server.opt.MaxBytes) {
		return region{}, x.tooMuch(bytes)
	}
	size := max(minRegion, 1<<bits.Len64(bytes-1))
	if err := x.grow(int64(size - len(*b))); err != nil {
		return region{}, err
	}
	larger, fd, err := newRegion(size, side == sideOut)
	if err != nil {
		x.shrink(int64(size - len(*b)))
		return region{}, status.Wrap(status.ResourceExhausted, err, "the server has no more shared memory")
	}
	if side == sideOut {
		unmap(sl.out)
		sl.out = larger
		sl.generation++
	} else {
		sl.unmapIn()
		sl.in = larger
		sl.shared = share(larger, fd)
	}
	msg := le.AppendUint32(nil, msgRegion)
	msg = le.AppendUint32(msg, uint32(sl.number))
	msg = le.AppendUint32(msg, side)
	msg = le.AppendUint32(msg, sl.generation)
	msg = le.AppendUint64(msg, uint64(size))
	return region{msg, fd}, nil
}

func (x *session) tooMuch(bytes uint64) error {
	return status.Rejectf(reject.TooLarge, status.ResourceExhausted,
		"%d more bytes do not fit the %d that a session may have; use fewer calls at once, keep fewer answers, or raise --session-max-bytes", bytes, x.server.opt.MaxBytes)
}

// grow claims memory for the session.
func (x *session) grow(n int64) error {
	x.memory.Lock()
	defer x.memory.Unlock()
	if x.bytes+n > x.server.opt.MaxBytes {
		return x.tooMuch(uint64(n))
	}
	if err := x.claim.Acquire(n); err != nil {
		return err
	}
	x.bytes += n
	x.server.bytes.Add(n)
	return nil
}

// shrink gives back memory that was claimed and not used. The budget gets it when
// the session ends.
func (x *session) shrink(n int64) {
	x.memory.Lock()
	defer x.memory.Unlock()
	x.bytes -= n
	x.server.bytes.Add(-n)
}

// free unmaps a slot that was never used.
func (x *session) free(sl *slot) {
	x.shrink(int64(len(sl.in) + len(sl.out)))
	sl.unmapIn()
	unmap(sl.out)
}

// unmapIn frees the memory of the inputs.
func (sl *slot) unmapIn() {
	if sl.shared != nil {
		sl.shared.End()
		closeFDs(sl.shared.FD)
		sl.shared = nil
	}
	unmap(sl.in)
}

// cancelCall ends a call that waits.
func (x *session) cancelCall(m message) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if sl := x.slots[m.slot]; sl != nil && sl.busy && sl.call == m.call {
		sl.caller.Leave()
		sl.caller = infer.NewCaller(x.context)
	}
}

// fail ends the session: its client does not follow the protocol, or is gone.
func (x *session) fail() { _ = x.conn.Close() } // control sees it

// close ends the session's calls and frees its memory.
func (x *session) close() {
	_ = x.conn.Close() // the client sees it
	x.mu.Lock()
	x.over = true
	for _, sl := range x.slots {
		if sl != nil {
			sl.caller.Leave()
		}
	}
	x.mu.Unlock()
	if x.cancel != nil {
		x.cancel()
	}
	close(x.done)
	x.wg.Wait()
	for _, sl := range x.slots {
		if sl != nil {
			sl.unmapIn()
			unmap(sl.out)
		}
	}
	unmap(x.client)
	unmap(x.ours)
	x.server.bytes.Add(-x.bytes)
	x.claim.Release()
	x.server.remove(x)
}
