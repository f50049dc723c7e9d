package session

import (
	"bytes"
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shoal/internal/backend/backendtest"
	"shoal/internal/infer"
	"shoal/internal/race"
	"shoal/internal/reject"
	"shoal/internal/tensor"
)

func TestCallsAreAnsweredInSharedMemory(t *testing.T) {
	r := startRig(t, testModels, nil)
	c := r.open(t, "plain")
	c.room(0, 1<<16)
	for i := range 100 {
		data := bytes.Repeat([]byte{byte(i), 1, 2, 3}, 16)
		c.floats(0, data, 16)
		c.push(0)
		if got, fault := c.result(0); fault != "" || !bytes.Equal(got, data) {
			t.Fatalf("call %d: got %v %s, want %v", i, got, fault, data)
		}
	}
	stats, err := r.engine.Statistics("plain", infer.LatestVersion)
	if err != nil || len(stats) != 1 || stats[0].Success.Count != 100 {
		t.Errorf("got statistics %v, %v, want 100 successes", stats, err)
	}
}

func TestOutputsThatDoNotFitGetMoreMemory(t *testing.T) {
	r := startRig(t, testModels, nil)
	c := r.open(t, "plain")
	c.room(0, 1<<20)
	data := bytes.Repeat([]byte{1, 2, 3, 4}, 50_000)
	c.floats(0, data, 50_000)
	c.push(0)
	c.region()
	if got, fault := c.result(0); fault != "" || !bytes.Equal(got, data) {
		t.Errorf("got %d bytes %s, want %d", len(got), fault, len(data))
	}
}

// A request of another protocol and the calls of two sessions are one batch.
func TestSessionsBatchWithOtherRequests(t *testing.T) {
	held := make(chan struct{})
	fake := &backendtest.Fake{}
	first := atomic.Bool{}
	fake.OnRun = func(b *infer.Batch) error {
		if !first.Swap(true) {
			<-held
		}
		return nil
	}
	r := startRig(t, map[string]string{"m": `backend: "fake" max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 0 } ` + oneInput}, nil, fake)
	one, two := r.open(t, "m"), r.open(t, "m")
	data := make([]byte, 8)
	for _, c := range []*client{one, two} {
		c.room(0, 1<<16)
		c.room(1, 1<<16)
		c.floats(0, data, 1, 2)
		c.floats(1, data, 1, 2)
	}
	one.push(0) // runs until held is closed
	until(t, "the first batch", first.Load)
	one.push(1)
	two.push(0)
	two.push(1)
	direct := make(chan error, 1)
	go func() {
		lease, err := r.engine.Acquire("m", infer.LatestVersion)
		if err != nil {
			direct <- err
			return
		}
		q := infer.NewRequest()
		q.Hold(lease)
		defer q.Release()
		in := q.AddInput()
		in.Name, in.Type, in.Shape, in.Data = "INPUT0", tensor.FP32, tensor.Shape{1, 2}, infer.Data{First: data}
		direct <- lease.Infer(context.Background(), q)
	}()
	until(t, "four requests in the queue", func() bool {
		s, err := r.engine.Statistics("m", infer.LatestVersion)
		return err == nil && s[0].Pending == 4
	})
	close(held)
	if err := <-direct; err != nil {
		t.Error(err)
	}
	one.await(1)
	two.await(0)
	two.await(1)
	if got := fake.Sizes(); len(got) != 2 || got[1] != 4 {
		t.Errorf("got batches of %v rows, want 1 and 4", got)
	}
}

func TestAClientThatIsGoneCostsNothing(t *testing.T) {
	held := make(chan struct{})
	started := make(chan struct{}, 8)
	fake := &backendtest.Fake{OnRun: func(*infer.Batch) error {
		started <- struct{}{}
		<-held
		return nil
	}}
	r := startRig(t, map[string]string{"m": `backend: "fake" max_batch_size: 1 dynamic_batching {} ` + oneInput}, nil, fake)
	stays, goes := r.open(t, "m"), r.open(t, "m")
	for _, c := range []*client{stays, goes} {
		c.room(0, 1<<16)
		c.floats(0, make([]byte, 8), 1, 2)
	}
	stays.push(0)
	<-started
	goes.push(0)
	until(t, "the second call in the queue", func() bool { return r.InFlight() == 2 })
	goes.close()
	until(t, "the end of its session", func() bool { return r.Sessions() == 1 && r.InFlight() == 1 })
	if got, want := r.Bytes(), int64(2*pageSize+2*minRegion); got != want {
		t.Errorf("got %d bytes of shared memory, want those of one session, %d", got, want)
	}
	close(held)
	stays.await(0)
	if got := fake.Sizes(); len(got) != 1 {
		t.Errorf("got %d batches, want only that of the client that stays", len(got))
	}
}

func TestACancelledCallLeavesTheQueue(t *testing.T) {
	held := make(chan struct{})
	started := make(chan struct{}, 8)
	fake := &backendtest.Fake{OnRun: func(*infer.Batch) error {
		started <- struct{}{}
		<-held
		return nil
	}}
	r := startRig(t, map[string]string{"m": `backend: "fake" max_batch_size: 1 dynamic_batching {} ` + oneInput}, nil, fake)
	c := r.open(t, "m")
	for slot := range uint32(2) {
		c.room(slot, 1<<16)
		c.floats(slot, make([]byte, 8), 1, 2)
	}
	c.push(0)
	<-started
	c.push(1)
	until(t, "both calls", func() bool { return r.InFlight() == 2 })
	b := le.AppendUint32(nil, msgCancel)
	b = le.AppendUint32(b, 1)
	c.send(le.AppendUint32(b, c.calls[1]))
	if _, fault := c.result(1); fault == "" {
		t.Error("got an answer, want an error")
	}
	close(held)
	if _, fault := c.result(0); fault != "" {
		t.Errorf("got %s for the other call", fault)
	}
	c.floats(1, make([]byte, 8), 1, 2)
	c.push(1)
	if _, fault := c.result(1); fault != "" {
		t.Errorf("got %s for the next call in the slot", fault)
	}
}

func TestSessionsAreRefusedWithAReason(t *testing.T) {
	r := startRig(t, testModels, func(o *Options) { o.MaxSessions = 1 })
	refused := func(version uint32, model, want string) {
		t.Helper()
		c := r.dial(t)
		c.hello(version, model)
		kind, body, _ := c.receive()
		if kind != msgRefused || !strings.Contains(string(body[8:]), want) {
			t.Errorf("got message %d %q, want a refusal: %s", kind, body, want)
		}
		c.ended()
	}
	refused(protocolVersion, "none", "unknown model")
	refused(99, "plain", "install both of one version")
	refused(protocolVersion, "stream", "decoupled")
	r.open(t, "plain")
	refused(protocolVersion, "plain", "--session-max-sessions")
	if got := r.rejects.Requests("", -1)[reject.Session][reject.UnknownModel]; got != 1 {
		t.Errorf("got %d rejected for an unknown model, want 1", got)
	}
}

func TestOtherUsersAreRefused(t *testing.T) {
	own := os.Geteuid()
	for _, tt := range []struct {
		name string
		opt  Options
		uid  int
		want bool
	}{
		{"the server's user", Options{}, own, true},
		{"root", Options{}, 0, true},
		{"another user", Options{}, own + 1, false},
		{"one that is named", Options{Users: []int{own + 1}}, own + 1, true},
		{"any", Options{AnyUser: true}, own + 2, true},
	} {
		if got := (&Server{opt: tt.opt}).allowed(tt.uid); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestErrorsOfCallsKeepTheSession(t *testing.T) {
	r := startRig(t, testModels, nil)
	c := r.open(t, "plain")
	c.room(0, 1<<16)
	fp := func(name string, kind tensor.Type, offset, size uint64, shape ...int64) []byte {
		return table(sent{name, kind, shape, offset, size})
	}
	for _, tt := range []struct {
		name, want string
		table      []byte
	}{
		{"an unknown input", "unexpected inference input 'X'", fp("X", tensor.FP32, dataAt, 8, 2)},
		{"another type", "data-type is 'INT32'", fp("INPUT0", tensor.Int32, dataAt, 8, 2)},
		{"more rows than bytes", "byte size mismatch", fp("INPUT0", tensor.FP32, dataAt, 8, 3)},
		{"data beyond the memory", "cannot be read", fp("INPUT0", tensor.FP32, 1<<16, 8, 2)},
		{"an offset that wraps around", "cannot be read", fp("INPUT0", tensor.FP32, ^uint64(0)-3, 8, 2)},
		{"too large a table", "the table of the call has", make([]byte, 1<<15)[:0]},
		{"a table that ends early", "cannot be read", fp("INPUT0", tensor.FP32, dataAt, 8, 2)[:30]},
		{"a type that does not exist", "data-type is", fp("INPUT0", 200, dataAt, 8, 2)},
	} {
		c.write(0, tt.table)
		if tt.name == "too large a table" {
			le.PutUint32(c.in[0][4:], ^uint32(0))
		}
		c.push(0)
		if _, fault := c.result(0); !strings.Contains(fault, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, fault, tt.want)
		}
	}
	c.floats(0, make([]byte, 8), 2)
	c.push(0)
	if _, fault := c.result(0); fault != "" {
		t.Errorf("got %s, want an answer", fault)
	}
	if got := r.rejects.Requests("plain", 1)[reject.Session][reject.BadInput]; got != 8 {
		t.Errorf("got %d rejected calls, want 8", got)
	}
}

func TestMemoryOfASessionIsLimited(t *testing.T) {
	r := startRig(t, testModels, func(o *Options) { o.MaxBytes = 1 << 20 })
	c := r.open(t, "plain")
	refused := func(slot uint32, bytes uint64) {
		t.Helper()
		c.ask(slot, bytes)
		kind, body, _ := c.receive()
		if kind == msgRegion { // of the inputs, before the outputs were refused
			kind, body, _ = c.receive()
		}
		if kind != msgRefused || !strings.Contains(string(body[8:]), "--session-max-bytes") {
			t.Errorf("got message %d %q, want a refusal", kind, body)
		}
	}
	refused(0, 1<<20)
	refused(0, 1<<63)
	c.room(0, 1<<19)
	refused(1, 1<<19)
	c.floats(0, make([]byte, 400_000), 100_000)
	c.push(0) // its outputs do not fit the rest
	if _, fault := c.result(0); !strings.Contains(fault, "--session-max-bytes") {
		t.Errorf("got %q, want an error that names the flag", fault)
	}
}

func TestStringsAreCheckedAfterTheyWereCopied(t *testing.T) {
	r := startRig(t, testModels, nil)
	c := r.open(t, "text")
	c.room(0, 1<<16)
	data := append([]byte{2, 0, 0, 0}, "hi"...)
	copy(c.in[0][dataAt:], data)
	c.write(0, table(sent{"INPUT0", tensor.Bytes, []int64{1}, dataAt, uint64(len(data))}))
	c.push(0)
	if got, fault := c.result(0); fault != "" || !bytes.Equal(got, data) {
		t.Errorf("got %q %s, want %q", got, fault, data)
	}
	c.write(0, table(sent{"INPUT0", tensor.Bytes, []int64{2}, dataAt, uint64(len(data))}))
	c.push(0)
	if _, fault := c.result(0); !strings.Contains(fault, "expected 2 string elements") {
		t.Errorf("got %q", fault)
	}
}

func TestCallsDoNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector empties pools")
	}
	r := startRig(t, testModels, nil)
	c := r.open(t, "plain")
	c.room(0, 1<<16)
	c.floats(0, make([]byte, 64), 16)
	kick := le.AppendUint32(nil, msgWake)
	calls := func(n int) {
		for range n {
			c.calls[0]++
			le.PutUint32(c.in[0], c.calls[0])
			store(word(c.page, ringAt+4*int(c.tail%maxSlots)), 0)
			c.tail++
			store(word(c.page, tailAt), c.tail)
			if load(word(c.server, pollingAt)) == 0 {
				c.send(kick)
			}
			for !c.answered(0) {
				runtime.Gosched()
			}
		}
	}
	calls(100)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	calls(1000)
	runtime.ReadMemStats(&after)
	if got := after.Mallocs - before.Mallocs; got > 100 { // the runtime has some of its own
		t.Errorf("got %d allocations for 1000 calls, want none", got)
	}
}

// The batch gets the client's memory itself: of an input the client makes one copy
// and the batch one. Of an output the server makes one, where the client reads it.
func TestInputsAreNotCopiedBeforeTheBatch(t *testing.T) {
	var data atomic.Pointer[byte]
	fake := &backendtest.Fake{OnRun: func(b *infer.Batch) error {
		data.Store(&b.Requests[0].Inputs[0].Data.First[0])
		return nil
	}}
	r := startRig(t, map[string]string{"m": `backend: "fake" max_batch_size: 8 dynamic_batching {} ` + oneInput}, nil, fake)
	c := r.open(t, "m")
	c.room(0, 1<<16)
	c.floats(0, make([]byte, 8), 1, 2)
	c.push(0)
	c.await(0)
	r.mu.Lock()
	defer r.mu.Unlock()
	for x := range r.sessions {
		x.mu.Lock()
		want := &x.slots[0].in[dataAt]
		x.mu.Unlock()
		if data.Load() != want {
			t.Errorf("got data at %p, want %p, where the client wrote them", data.Load(), want)
		}
	}
}

var stress = flag.Duration("stress", 500*time.Millisecond, "how long clients come and go in TestClientsThatComeAndGo")

// Clients call, several calls at a time, and leave at any point, also with calls in
// flight. The answers are right, the counts reconcile, and what is left is checked at
// the end of every test.
func TestClientsThatComeAndGo(t *testing.T) {
	r := startRig(t, testModels, nil)
	var wg sync.WaitGroup
	var sent, answered atomic.Int64
	end := time.Now().Add(*stress)
	for n := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			for time.Now().Before(end) {
				name, shape := "plain", []int64{64}
				if rng.IntN(2) == 0 {
					name, shape = "rows", []int64{1, 64}
				}
				c := r.open(t, name)
				slots := uint32(1 + rng.IntN(3))
				for slot := range slots {
					c.room(slot, 1<<16)
				}
				for n := range rng.IntN(20) {
					if n > 0 && n < 4 { // it grows right after an answer, while the server may still look for calls
						for slot := range slots {
							c.ask(slot, 1<<(16+n))
							c.region()
						}
					}
					data := bytes.Repeat([]byte{byte(rng.Uint32())}, 4*64)
					for slot := range slots {
						c.floats(slot, data, shape...)
						c.push(slot)
						sent.Add(1)
					}
					if rng.IntN(10) == 0 {
						break // with its calls in flight
					}
					for slot := range slots {
						if got, fault := c.result(slot); !bytes.Equal(got, data) {
							t.Errorf("got %v %s, want what was sent", got, fault)
							return
						}
						answered.Add(1)
					}
				}
				c.close()
			}
		})
	}
	wg.Wait()
	until(t, "the end of all sessions", func() bool { return r.Sessions() == 0 })
	var done uint64
	for _, name := range []string{"plain", "rows"} {
		stats, err := r.engine.Statistics(name, infer.LatestVersion)
		if err != nil {
			t.Fatal(err)
		}
		done += stats[0].Success.Count
	}
	if done < uint64(answered.Load()) || done > uint64(sent.Load()) || answered.Load() == 0 {
		t.Errorf("got %d calls that the server counts, want from %d answered to %d sent", done, answered.Load(), sent.Load())
	}
}
