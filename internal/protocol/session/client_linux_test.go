package session

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shoal/internal/backend"
	"shoal/internal/backend/example/identity"
	"shoal/internal/engine"
	"shoal/internal/inflight"
	"shoal/internal/reject"
	"shoal/internal/tensor"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

const oneInput = `input { name: "INPUT0" data_type: TYPE_FP32 dims: [-1] } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [-1] } `

var testModels = map[string]string{
	"plain":  `backend: "identity" ` + oneInput,
	"rows":   `backend: "identity" max_batch_size: 8 dynamic_batching {} ` + oneInput,
	"text":   `backend: "identity" input { name: "INPUT0" data_type: TYPE_STRING dims: [-1] } output { name: "OUTPUT0" data_type: TYPE_STRING dims: [-1] }`,
	"stream": `backend: "identity" model_transaction_policy { decoupled: true } ` + oneInput,
}

// A rig is a running server.
type rig struct {
	*Server
	engine  *engine.Engine
	path    string
	budget  *inflight.Budget
	rejects *reject.Counter
}

// startRig starts a server with the test's models, which ends with the test.
func startRig(t testing.TB, models map[string]string, change func(*Options), backends ...backend.Backend) *rig {
	t.Helper()
	root := t.TempDir()
	for name, config := range models {
		if err := os.MkdirAll(filepath.Join(root, name, "1"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	e, err := engine.Start(t.Context(), engine.Options{
		Repositories: []string{root}, Backends: append(backends, identity.Backend{}), LoadThreads: 1, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Failed(); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "s") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rig{engine: e, path: filepath.Join(dir, "s"), budget: inflight.New(1<<34, 0), rejects: reject.New(e.Lookup, log)}
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: r.path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	opt := Options{MaxSessions: 64, MaxBytes: 1 << 24, Memory: r.budget, Rejects: r.rejects, Log: log}
	if change != nil {
		change(&opt)
	}
	r.Server = Start(opt, e, ln)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
		if n, bytes, used := r.Sessions(), r.Bytes(), r.budget.Used(); n != 0 || bytes != 0 || used != 0 {
			t.Errorf("got %d sessions, %d bytes of shared memory and %d of the budget after Close, want none", n, bytes, used)
		}
		if err := e.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return r
}

// A client is the other end of a session, with nothing of the server's code but
// its constants.
type client struct {
	t      testing.TB
	conn   *net.UnixConn
	fds    []int    // of the pages, then of regions
	maps   [][]byte // of all memory
	page   []byte
	server []byte
	in     map[uint32][]byte
	out    map[uint32][]byte
	tail   uint32
	calls  [maxSlots]uint32
}

func (r *rig) dial(t testing.TB) *client {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: r.path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	c := &client{t: t, conn: conn, in: make(map[uint32][]byte), out: make(map[uint32][]byte)}
	t.Cleanup(c.close)
	return c
}

// open opens a session.
func (r *rig) open(t testing.TB, model string) *client {
	t.Helper()
	c := r.dial(t)
	c.hello(protocolVersion, model)
	kind, body, fds := c.receive()
	if kind != msgWelcome || len(fds) != 2 {
		t.Fatalf("got message %d %q with %d descriptors, want a welcome", kind, body, len(fds))
	}
	c.page, c.server = c.mmap(fds[0], pageSize, unix.PROT_READ|unix.PROT_WRITE), c.mmap(fds[1], pageSize, unix.PROT_READ)
	return c
}

func (c *client) close() {
	_ = c.conn.Close()
	for _, fd := range c.fds {
		_ = unix.Close(fd)
	}
	for _, b := range c.maps {
		_ = unix.Munmap(b)
	}
	c.fds, c.maps = nil, nil
}

func (c *client) hello(version uint32, model string) {
	b := le.AppendUint32(nil, msgHello)
	b = le.AppendUint32(b, version)
	b = le.AppendUint64(b, ^uint64(0)) // the latest
	c.send(append(b, model...))
}

func (c *client) send(b []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// receive returns the next message; kind 0 when the server has closed the
// session.
func (c *client) receive() (kind uint32, body []byte, fds []int) {
	c.t.Helper()
	b, oob := make([]byte, 1<<17), make([]byte, 128)
	n, control, _, _, err := c.conn.ReadMsgUnix(b, oob)
	if err != nil || n < 4 {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			c.t.Fatal("no message came")
		}
		return 0, nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob[:control])
	if err != nil {
		c.t.Fatal(err)
	}
	for i := range messages {
		got, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			c.t.Fatal(err)
		}
		fds = append(fds, got...)
	}
	c.fds = append(c.fds, fds...)
	return le.Uint32(b), b[4:n], fds
}

func (c *client) mmap(fd, size, access int) []byte {
	c.t.Helper()
	b, err := unix.Mmap(fd, 0, size, access, unix.MAP_SHARED)
	if err != nil {
		c.t.Fatal(err)
	}
	c.maps = append(c.maps, b)
	return b
}

// ask asks for memory for the inputs of a slot.
func (c *client) ask(slot uint32, bytes uint64) {
	b := le.AppendUint32(nil, msgRoom)
	b = le.AppendUint32(b, slot)
	c.send(le.AppendUint64(b, bytes))
}

// region takes a message with memory.
func (c *client) region() {
	c.t.Helper()
	kind, body, fds := c.receive()
	if kind != msgRegion || len(fds) != 1 {
		c.t.Fatalf("got message %d %q, want memory", kind, body)
	}
	slot, side, size := le.Uint32(body), le.Uint32(body[4:]), int(le.Uint64(body[12:]))
	if side == sideIn {
		c.in[slot] = c.mmap(fds[0], size, unix.PROT_READ|unix.PROT_WRITE)
	} else {
		c.out[slot] = c.mmap(fds[0], size, unix.PROT_READ)
	}
}

// room gets memory for a new slot.
func (c *client) room(slot uint32, bytes uint64) {
	c.t.Helper()
	c.ask(slot, bytes)
	c.region()
	c.region()
}

// A sent is an input of a call.
type sent struct {
	name   string
	kind   tensor.Type
	shape  []int64
	offset uint64
	size   uint64
}

func table(inputs ...sent) []byte {
	b := le.AppendUint16(nil, uint16(len(inputs)))
	b = append(b, make([]byte, 22)...)
	for _, s := range inputs {
		b = append(b, byte(s.kind), byte(len(s.shape)))
		b = le.AppendUint16(b, uint16(len(s.name)))
		b = le.AppendUint64(b, s.offset)
		b = le.AppendUint64(b, s.size)
		for _, d := range s.shape {
			b = le.AppendUint64(b, uint64(d))
		}
		b = append(b, s.name...)
	}
	return b
}

const dataAt = 4096

// floats writes a call with one input of FP32 into a slot.
func (c *client) floats(slot uint32, data []byte, shape ...int64) {
	copy(c.in[slot][dataAt:], data)
	c.write(slot, table(sent{"INPUT0", tensor.FP32, shape, dataAt, uint64(len(data))}))
}

// write writes a call's table into a slot.
func (c *client) write(slot uint32, table []byte) {
	c.calls[slot]++
	le.PutUint32(c.in[slot], c.calls[slot])
	le.PutUint32(c.in[slot][4:], uint32(len(table)))
	copy(c.in[slot][inHead:], table)
}

// push adds a call to the ring and wakes the server.
func (c *client) push(slot uint32) {
	store(word(c.page, ringAt+4*int(c.tail%maxSlots)), slot)
	c.tail++
	store(word(c.page, tailAt), c.tail)
	if load(word(c.server, pollingAt)) == 0 {
		c.send(le.AppendUint32(nil, msgWake))
	}
}

func (c *client) answered(slot uint32) bool {
	return load(word(c.server, answersAt+8*int(slot))) == c.calls[slot]
}

// await waits for an answer.
func (c *client) await(slot uint32) {
	c.t.Helper()
	for end := time.Now().Add(patience); !c.answered(slot); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			c.t.Fatalf("call %d in slot %d has no answer", c.calls[slot], slot)
		}
	}
}

// result returns the data of the first output, or the error's text.
func (c *client) result(slot uint32) (data []byte, fault string) {
	c.t.Helper()
	c.await(slot)
	out := c.out[slot]
	size := le.Uint32(out[8:])
	if le.Uint32(out[4:]) != 0 {
		return nil, string(out[outHead : outHead+size])
	}
	if le.Uint16(out[12:]) == 0 {
		return nil, ""
	}
	offset, bytes := le.Uint64(out[outHead+4:]), le.Uint64(out[outHead+12:])
	return out[offset : offset+bytes], ""
}

// ended waits for the server to close the session.
func (c *client) ended() {
	c.t.Helper()
	for kind := uint32(1); kind != 0; {
		kind, _, _ = c.receive()
	}
}

// until waits for what must become true.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("still waiting: %s", what)
		}
	}
}
