package python

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// calls are a worker's requests to other models. The worker asks for a slot of
// the shared memory and keeps it for its next calls. It writes the inputs into
// its half and the server writes the outputs into the other; all else goes over
// the socket.
type calls struct {
	model *loaded // nil for a worker that only describes its model
	link  *link
	ctx   context.Context // ends with the worker
	stop  context.CancelFunc

	mu       sync.Mutex // protects the fields below
	slots    map[int]*slot
	live     map[int64]*call
	over     bool
	holder   *backend.Holder // of the batch that runs
	sequence uint64          // of that batch
}

// A call is one request to another model.
type call struct {
	id     int64
	slot   *slot
	direct bool
	cancel context.CancelFunc
	taken  chan struct{} // buffered 1: the worker has read the last response
}

// A callMessage is a worker's request to another model.
type callMessage struct {
	Call       int64
	Slot       int
	Size       uint64 // of the worker's half
	Model      string
	Version    int64
	ID         string
	Priority   uint64
	Timeout    int64 // microseconds
	Sequence   uint64
	SequenceID string `json:"sequence_id"`
	Flags      int
	Params     map[string]any
	Wanted     []string
	Inputs     []callTensor
	Decoupled  bool
	Batch      uint64 // the batch that waits for the answer; 0 when none does
	Direct     bool   // the thread that called waits for the answer in the slot, rather than for one over the socket
}

// A callTensor is a tensor of a call and where it is in the slot.
type callTensor struct {
	Name   string  `json:"name"`
	Type   int     `json:"type"`
	Shape  []int64 `json:"shape"`
	Offset uint64  `json:"offset"`
	Size   uint64  `json:"size"`
}

// A callAnswer is a response to a call, or its end.
type callAnswer struct {
	Call    int64          `json:"call"`
	Final   bool           `json:"final"`
	Empty   bool           `json:"empty,omitempty"` // there is no response, only the end
	Error   string         `json:"error,omitempty"`
	Code    int            `json:"code,omitempty"`
	Size    int            `json:"size,omitempty"` // of the server's half
	Outputs []callTensor   `json:"outputs,omitempty"`
	Params  map[string]any `json:"params,omitempty"`
}

func newCalls(m *loaded, l *link) *calls {
	c := &calls{model: m, link: l, slots: make(map[int]*slot), live: make(map[int64]*call)}
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

// call starts a call.
func (c *calls) call(payload []byte) error {
	var msg callMessage
	if err := json.Unmarshal(payload, &msg); err != nil {
		return wireFault("a call that cannot be read: %v", err)
	}
	c.mu.Lock()
	s := c.slots[msg.Slot]
	if s == nil || c.live[msg.Call] != nil {
		c.mu.Unlock()
		return wireFault("call %d is in slot %d, which is not one for calls", msg.Call, msg.Slot)
	}
	if msg.Size > half {
		c.mu.Unlock()
		return wireFault("call %d has %d bytes", msg.Call, msg.Size)
	}
	k := &call{id: msg.Call, slot: s, direct: msg.Direct && !msg.Decoupled, taken: make(chan struct{}, 1)}
	ctx, parent := c.context(msg.Batch)
	ctx, k.cancel = context.WithCancel(ctx)
	c.live[k.id] = k
	c.model.calls.Add(1)
	c.mu.Unlock()
	go func() {
		defer c.model.calls.Done()
		if parent != nil {
			defer context.AfterFunc(parent, k.cancel)()
		}
		c.run(ctx, k, &msg)
	}()
	return nil
}

// context returns the context of a call, and, for the call of a batch with one
// request, that of its client, with which the call ends. The caller has the
// mutex.
func (c *calls) context(batch uint64) (ctx, parent context.Context) {
	if batch == 0 {
		return c.ctx, nil
	}
	parents := c.link.clients.running(batch)
	if c.sequence != batch {
		c.sequence, c.holder = batch, &backend.Holder{Model: c.model.sig.Name, Version: c.model.src.Version}
		for _, p := range parents {
			if h := backend.HolderOf(p); h != nil {
				c.holder.Parents = append(c.holder.Parents, h)
			}
		}
	}
	ctx = backend.WithHolder(c.ctx, c.holder)
	if len(parents) == 1 {
		parent = parents[0]
	}
	return ctx, parent
}

// run sends a call to its model and the answers to the worker.
func (c *calls) run(ctx context.Context, k *call, msg *callMessage) {
	defer k.cancel()
	r := infer.NewRequest()
	defer r.Release()
	err := c.ask(ctx, k, msg, r)
	if err != nil {
		_ = c.send(k, &callAnswer{Call: k.id, Final: true, Error: status.Public(err), Code: int(status.CodeOf(err))})
	}
	c.finish(k)
}

// ask runs a call. Unless it fails, the worker has its final answer.
func (c *calls) ask(ctx context.Context, k *call, msg *callMessage, r *infer.Request) error {
	decoupled, ready := c.model.host.Decoupled(msg.Model, msg.Version)
	const prefix = "Model %s - Error when running inference: "
	switch {
	case !ready:
		return status.Errorf(status.Internal, prefix+"Failed for execute the inference request. Model '%s' is not ready.", msg.Model, msg.Model)
	case decoupled && !msg.Decoupled:
		return status.Errorf(status.Internal, prefix+"Model %s is using the decoupled. The current BLS request call doesn't support models using the decoupled transaction policy. "+
			"Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled models.'", msg.Model, msg.Model)
	}
	if err := msg.fill(r, k.slot); err != nil {
		return err
	}
	if !msg.Decoupled {
		if err := c.model.host.Infer(ctx, r); err != nil {
			return refused(msg.Model, r, err)
		}
		return c.answer(k, &r.Response, true)
	}
	ended := false
	err := c.model.host.InferStream(ctx, r, func(resp *infer.Response, final bool) error {
		ended = ended || final
		if resp == nil {
			return c.send(k, &callAnswer{Call: k.id, Final: true, Empty: true})
		}
		if err := c.answer(k, resp, final); err != nil || final {
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
	return refused(msg.Model, r, err)
}

// refused returns the error of a call in the form that models know: with a
// prefix when its model never got it.
func refused(model string, r *infer.Request, err error) error {
	if r.Outcome != infer.Refused {
		return err
	}
	return status.Wrap(status.Internal, err, "Model "+model+" - Error when running inference: "+status.Public(err))
}

// fill makes a request of the message.
func (msg *callMessage) fill(r *infer.Request, s *slot) error {
	if err := s.see(int(msg.Size)); err != nil {
		return err
	}
	r.Model, r.Version, r.ID, r.Priority = msg.Model, msg.Version, msg.ID, msg.Priority
	r.Timeout = time.Duration(msg.Timeout) * time.Microsecond
	r.Sequence = infer.Sequence{ID: msg.Sequence, StringID: msg.SequenceID, Start: msg.Flags&1 != 0, End: msg.Flags&2 != 0}
	for name, value := range msg.Params {
		p, err := callParam(name, value)
		if err != nil {
			return err
		}
		r.Params = append(r.Params, p)
	}
	for _, name := range msg.Wanted {
		r.Outputs = append(r.Outputs, infer.Wanted{Name: name})
	}
	for i := range msg.Inputs {
		t := &msg.Inputs[i]
		if t.Offset > msg.Size || t.Size > msg.Size-t.Offset || t.Type < 0 || t.Type > math.MaxUint8 || len(t.Shape) > maxRank {
			return status.Errorf(status.InvalidArgument, "input '%s' has %d bytes at %d of %d", t.Name, t.Size, t.Offset, msg.Size)
		}
		in := r.AddInput()
		in.Name, in.Type, in.Shape = t.Name, tensor.Type(t.Type), t.Shape
		data := s.out[t.Offset : t.Offset+t.Size]
		// Strings must not change after they were checked, and a decoupled model may
		// use its inputs after its last response, when the worker uses the slot again.
		if in.Type == tensor.Bytes || msg.Decoupled {
			data = append(r.Grow(len(data))[:0], data...)
		}
		in.Data = infer.Data{First: data}
	}
	return nil
}

func callParam(name string, value any) (infer.Param, error) {
	switch v := value.(type) {
	case string:
		return infer.Param{Name: name, Kind: infer.ParamString, String: v}, nil
	case bool:
		return infer.Param{Name: name, Kind: infer.ParamBool, Bool: v}, nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return infer.Param{Name: name, Kind: infer.ParamInt, Int: int64(v)}, nil
		}
		return infer.Param{Name: name, Kind: infer.ParamFloat, Float: v}, nil
	}
	return infer.Param{}, status.Errorf(status.InvalidArgument, "parameter '%s' is of a type that requests cannot carry", name)
}

// answer copies a response into the slot and sends the rest of it.
func (c *calls) answer(k *call, resp *infer.Response, final bool) error {
	if resp.Err != nil {
		return c.send(k, &callAnswer{Call: k.id, Final: final, Error: status.Public(resp.Err), Code: int(status.CodeOf(resp.Err))})
	}
	msg := &callAnswer{Call: k.id, Final: final}
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
		out := &resp.Outputs[i]
		n := copy(k.slot.in[at:], out.Data)
		msg.Outputs = append(msg.Outputs, callTensor{Name: out.Name, Type: int(out.Type), Shape: out.Shape, Offset: uint64(at), Size: uint64(n)})
		at = align(at + n)
	}
	msg.Size = size
	k.slot.usedIn = max(k.slot.usedIn, size)
	for i := range resp.Params {
		if msg.Params == nil {
			msg.Params = make(map[string]any)
		}
		msg.Params[resp.Params[i].Name] = paramValue(&resp.Params[i])
	}
	return c.send(k, msg)
}

func paramValue(p *infer.Param) any {
	switch p.Kind {
	case infer.ParamInt:
		return p.Int
	case infer.ParamUint:
		return p.Uint
	case infer.ParamFloat:
		return p.Float
	case infer.ParamBool:
		return p.Bool
	}
	return p.String
}

// send sends an answer: over the socket, or through the slot to a thread that
// waits there. The slot's header then has the call's number, which ends the wait,
// and the place of the message. After a final answer the worker may use the slot
// for another call, so the call must have ended before.
func (c *calls) send(k *call, msg *callAnswer) error {
	b, err := json.Marshal(msg)
	if err != nil { // a parameter that is no number
		return status.Wrap(status.Internal, err, fmt.Sprintf("the answer of a called model cannot be told: %v", err))
	}
	if !k.direct {
		if msg.Final {
			c.finish(k)
		}
		return c.link.send(frameAnswer, b)
	}
	at := max(msg.Size, headSize)
	if err := k.slot.reach(at + len(b)); err != nil {
		return err
	}
	in := k.slot.in
	copy(in[at:], b)
	binary.LittleEndian.PutUint32(in[4:], uint32(len(b)))
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
	case k.direct: // under the mutex: otherwise the slot may be freed meanwhile
		wakeWord(k.slot.in, uint32(k.id))
	}
}

// next says that the worker has read a response of a call, or wants no more.
func (c *calls) next(payload []byte) error {
	var msg struct {
		Call int64
		Stop bool
	}
	if err := json.Unmarshal(payload, &msg); err != nil {
		return wireFault("a message about a call that cannot be read: %v", err)
	}
	c.mu.Lock()
	k := c.live[msg.Call]
	c.mu.Unlock()
	switch {
	case k == nil: // it has ended
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
