package python

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"sync"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/status"
)

// calls are a worker's requests to other models. The worker asks for a slot of
// the shared memory and keeps it for its next calls. It writes the inputs into
// its half and the server writes the outputs into the other. A call of the thread
// that runs a batch is run by the goroutine that waits for the batch, with its
// message in the slot, too; other calls come over the socket and run on goroutines
// of their own.
type calls struct {
	model *loaded // nil for a worker that only describes its model
	link  *link
	ctx   context.Context // ends with the worker
	stop  context.CancelFunc

	mu       sync.Mutex // protects the fields below
	slots    map[int]*slot
	live     map[uint32]*call
	tables   callTables
	over     bool
	holder   *backend.Holder // of the batch that runs
	sequence uint64          // of that batch
}

// A call is one request to another model.
type call struct {
	callMessage
	slot   *slot
	wake   func(*call)   // tells the thread that waits in the slot; nil when the answers go over the socket
	cancel func()        // ends the call's context, unless that is the batch's
	taken  chan struct{} // buffered 1: the worker has read the last response
	answer []byte        // memory for the message of an answer
}

func newCalls(m *loaded, l *link) *calls {
	c := &calls{model: m, link: l, slots: make(map[int]*slot), live: make(map[uint32]*call)}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// slot gives the worker a slot for calls.
func (c *calls) slot(payload []byte) error {
	ask, _, err := readQuestion(payload)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.model == nil {
		return c.link.reply(ask, 0, status.Errorf(status.Unavailable, "models cannot be called now"))
	}
	s, err := c.link.mem.take()
	if err != nil {
		return c.link.reply(ask, 0, err)
	}
	c.slots[s.number] = s
	return c.link.reply(ask, float64(s.number), nil)
}

// call starts a call that came over the socket.
func (c *calls) call(payload []byte) error {
	k, ctx, err := c.begin(payload, false)
	if err != nil {
		return err
	}
	if k.direct && !k.decoupled {
		k.wake = func(k *call) { wakeWord(k.slot.in, k.id) }
	}
	go func() {
		defer c.model.calls.Done()
		c.run(ctx, k)
	}()
	return nil
}

// inline runs a call of the thread that runs the batch. Its message is in a slot.
func (c *calls) inline(number int, at, size uint64) error {
	c.mu.Lock()
	s := c.slots[number]
	c.mu.Unlock()
	if s == nil || at > half || size > maxCallMessage {
		return wireFault("a call is in slot %d at %d, with %d bytes", number, at, size)
	}
	if err := s.see(int(at + size)); err != nil {
		return err
	}
	k, ctx, err := c.begin(append([]byte(nil), s.out[at:at+size]...), true)
	if err != nil {
		return err
	}
	defer c.model.calls.Done()
	if k.slot != s || k.decoupled {
		c.finish(k)
		return wireFault("call %d is in slot %d, and its message in slot %d", k.id, k.number, number)
	}
	k.wake = func(*call) { _ = c.link.mem.answered() } // a worker that is gone need not know
	c.run(ctx, k)
	return nil
}

// begin reads a call's message and records the call, and returns its context.
// Own means that the thread that runs the batch calls. The caller must end
// c.model.calls for it.
func (c *calls) begin(payload []byte, own bool) (k *call, ctx context.Context, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k = &call{}
	if err := k.read(payload, &c.tables); err != nil {
		return nil, nil, err
	}
	k.slot = c.slots[k.number]
	if k.slot == nil || c.live[k.id] != nil {
		return nil, nil, wireFault("call %d is in slot %d, which is not one for calls", k.id, k.number)
	}
	if k.size > half {
		return nil, nil, wireFault("call %d has %d bytes", k.id, k.size)
	}
	if k.decoupled {
		k.taken = make(chan struct{}, 1)
	}
	if own { // the context of one call does for the others of the batch, which come one after the other
		k.cancel = func() {}
		ctx = c.link.clients.calling(k.batch, func(parents []context.Context) (context.Context, func()) { return c.context(k.batch, parents) })
	}
	if ctx == nil {
		ctx, k.cancel = c.context(k.batch, c.link.clients.running(k.batch))
	}
	c.live[k.id] = k
	c.model.calls.Add(1)
	return k, ctx, nil
}

// context returns a context for calls of a batch, 0 for none, whose requests
// have those contexts, and what ends it. It also ends with the worker and, if the
// batch has one request, with its client. The caller has the mutex.
func (c *calls) context(batch uint64, parents []context.Context) (context.Context, func()) {
	if batch == 0 {
		return context.WithCancel(c.ctx)
	}
	if c.sequence != batch {
		c.sequence, c.holder = batch, &backend.Holder{Model: c.model.sig.Name, Version: c.model.src.Version}
		for _, p := range parents {
			if h := backend.HolderOf(p); h != nil {
				c.holder.Parents = append(c.holder.Parents, h)
			}
		}
	}
	ctx, cancel := context.WithCancel(backend.WithHolder(c.ctx, c.holder))
	if len(parents) != 1 || parents[0] == nil {
		return ctx, cancel
	}
	stop := context.AfterFunc(parents[0], cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// run sends a call to its model and the answers to the worker.
func (c *calls) run(ctx context.Context, k *call) {
	defer k.cancel()
	r := infer.NewRequest()
	defer r.Release()
	if err := c.ask(ctx, k, r); err != nil {
		_ = c.send(k, k.failed(err, true), headSize, true) // a worker that is gone need not know
	}
	c.finish(k)
}

// ask runs a call. Unless it fails, the worker has its final answer.
func (c *calls) ask(ctx context.Context, k *call, r *infer.Request) error {
	name := k.table.model
	decoupled, ready := c.model.host.Decoupled(name, k.table.version)
	const prefix = "Model %s - Error when running inference: "
	switch {
	case !ready:
		return status.Errorf(status.Internal, prefix+"Failed for execute the inference request. Model '%s' is not ready.", name, name)
	case decoupled && !k.decoupled:
		return status.Errorf(status.Internal, prefix+"Model %s is using the decoupled. The current BLS request call doesn't support models using the decoupled transaction policy. "+
			"Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled models.'", name, name)
	}
	if err := k.fill(r, k.slot); err != nil {
		return err
	}
	if t := k.extras.Trace; t != nil && t[1] <= math.MaxUint32 {
		key := requestKey{t[0], uint32(t[1])}
		child := c.link.clients.trace(key)
		r.Trace = child
		defer func() { c.link.clients.traced(key, child) }()
	}
	if !k.decoupled {
		if err := c.model.host.Infer(ctx, r); err != nil {
			return refused(name, r, err)
		}
		return c.respond(k, &r.Response, true)
	}
	ended := false
	err := c.model.host.InferStream(ctx, r, func(resp *infer.Response, final bool) error {
		ended = ended || final
		if resp == nil {
			return c.send(k, k.empty(), headSize, true)
		}
		if err := c.respond(k, resp, final); err != nil || final {
			return err
		}
		select {
		case <-k.taken:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if ended {
		return nil
	}
	return refused(name, r, err)
}

// refused returns the error of a call in the form that models know: with a
// prefix when its model never got it.
func refused(model string, r *infer.Request, err error) error {
	if r.Outcome != infer.Refused {
		return err
	}
	return status.Wrap(status.Internal, err, "Model "+model+" - Error when running inference: "+status.Public(err))
}

// respond copies a response into the slot and sends the rest of it.
func (c *calls) respond(k *call, resp *infer.Response, final bool) error {
	if resp.Err != nil {
		return c.send(k, k.failed(resp.Err, final), headSize, final)
	}
	size := headSize
	for i := range resp.Outputs {
		size = align(size + len(resp.Outputs[i].Data))
	}
	if size > half {
		return status.Errorf(status.Internal, "the outputs have %d bytes, and at most %d can be given to a model", size, half)
	}
	if err := k.slot.reach(size); err != nil {
		return err
	}
	at := headSize
	for i := range resp.Outputs {
		at = align(at + copy(k.slot.in[at:], resp.Outputs[i].Data))
	}
	k.slot.usedIn = max(k.slot.usedIn, size)
	msg, err := k.answered(resp, size, final)
	if err != nil {
		return err
	}
	return c.send(k, msg, size, final)
}

// send sends the message of an answer: over the socket, or, after the outputs in
// the slot, to a thread that waits there. The slot's header then has the call's
// number and the place of the message. After a final answer the worker may use the
// slot for another call, so the call must have ended before.
func (c *calls) send(k *call, msg []byte, at int, final bool) error {
	if k.wake == nil {
		if final {
			c.finish(k)
		}
		return c.link.send(frameAnswer, msg)
	}
	if err := k.slot.reach(at + len(msg)); err != nil {
		return err
	}
	in := k.slot.in
	copy(in[at:], msg)
	binary.LittleEndian.PutUint32(in[4:], uint32(len(msg)))
	binary.LittleEndian.PutUint64(in[8:], uint64(at))
	c.finish(k)
	return nil
}

// finish ends a call, unless it has ended, and the wait of the thread that
// called.
func (c *calls) finish(k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live[k.id] != k {
		return
	}
	delete(c.live, k.id)
	switch {
	case c.over:
		c.link.mem.put(k.slot)
	case k.wake != nil: // under the mutex: otherwise the slot may be freed meanwhile
		k.wake(k)
	}
}

// next says that the worker has read a response of a call, or wants no more.
func (c *calls) next(payload []byte) error {
	var msg struct {
		Call uint32
		Stop bool
	}
	if err := json.Unmarshal(payload, &msg); err != nil {
		return wireFault("a message about a call that cannot be read: %v", err)
	}
	c.mu.Lock()
	k := c.live[msg.Call]
	c.mu.Unlock()
	switch {
	case k == nil || k.taken == nil: // it has ended, or has one answer
	case msg.Stop:
		k.cancel()
	default:
		select {
		case k.taken <- struct{}{}:
		default:
			return wireFault("it has read a response of call %d twice", msg.Call)
		}
	}
	return nil
}

// control loads or unloads a model for the worker, or says whether one is
// ready.
func (c *calls) control(payload []byte) error {
	var msg struct {
		Ask        int64
		Act        string
		Model      string
		Version    int64
		Config     string
		Files      map[string][]byte
		Dependents bool
	}
	if err := json.Unmarshal(payload, &msg); err != nil {
		return wireFault("a message about a model that cannot be read: %v", err)
	}
	if c.model == nil {
		return c.link.reply(msg.Ask, 0, status.Errorf(status.Unavailable, "models cannot be changed now"))
	}
	c.model.calls.Add(1)
	go func() {
		defer c.model.calls.Done()
		value := 0.0
		var err error
		switch {
		case msg.Act == "ready":
			if _, ready := c.model.host.Decoupled(msg.Model, msg.Version); ready {
				value = 1
			}
		case msg.Model == c.model.sig.Name:
			err = status.Errorf(status.InvalidArgument, "model '%s' cannot change itself: the change would wait for the call that asks for it", msg.Model)
		case msg.Act == "load":
			err = c.model.host.Load(c.ctx, msg.Model, msg.Config, msg.Files)
		case msg.Act == "unload":
			err = c.model.host.Unload(c.ctx, msg.Model, msg.Dependents)
		default:
			err = status.Errorf(status.Unsupported, "unknown act %q", msg.Act)
		}
		_ = c.link.reply(msg.Ask, value, err) // a worker that is gone need not know
	}()
	return nil
}

// end ends all calls, because the worker is gone, and frees their slots.
func (c *calls) end() {
	c.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	busy := make(map[*slot]bool, len(c.live))
	for _, k := range c.live {
		busy[k.slot] = true
	}
	for _, s := range c.slots {
		if !busy[s] {
			c.link.mem.put(s)
		}
	}
	c.slots = nil
}
