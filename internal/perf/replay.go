package perf

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"shoal/internal/arrivals"
	"shoal/internal/client"
	"shoal/internal/perf/input"
	"shoal/internal/perf/result"
	"shoal/internal/tensor"
)

// maxReplayBytes bounds the messages of a replay, which are made beforehand.
const maxReplayBytes = 1 << 30

// SetReplay changes the settings to replay a trace: its arrivals for the model,
// once, at the given speed. File is the trace's name.
func (s *Settings) SetReplay(file string, t *arrivals.Trace, speed float64) error {
	part := t.Of(s.Model)
	n := len(part.Arrivals)
	if n == 0 {
		return fmt.Errorf("%s has no arrival for model %q, but for %s", file, s.Model, strings.Join(t.Models(), ", "))
	}
	s.Mode, s.Distribution, s.Replay = result.Intervals, result.Replay, part
	s.Plan.Mode, s.Plan.RequestCount = result.RequestCount, int64(n)
	s.Plan.Replay, s.Plan.ReplaySpeed = file, speed
	// The pacer also asks for the gap after the last arrival.
	s.Intervals = append(part.Gaps(speed), 0)
	length := part.Arrivals[n-1].At - part.Arrivals[0].At
	rate := float64(n) / max(length.Seconds()/speed, time.Millisecond.Seconds())
	s.Range = Range{Start: rate, End: rate, Step: 1, Single: true}
	return nil
}

// A replayer makes the messages of a replay: one for each kind of request in
// the trace, and the ordinary ones for arrivals without shapes.
type replayer struct {
	session  *Session
	ports    []input.Port
	add      func(*client.Request) error
	messages []int // by kind: its message; -1: an ordinary one
	ordinary int   // how many ordinary messages there are; they come first
	bytes    int64
}

// encodeReplay makes the messages and the order in which they are sent.
func (s *Session) encodeReplay(ports []input.Port) error {
	t := s.settings.Replay
	r := &replayer{session: s, ports: ports, messages: make([]int, len(t.Kinds))}
	used := make([]bool, len(t.Kinds))
	plain := false
	for _, a := range t.Arrivals {
		used[a.Kind] = true
		plain = plain || len(t.Kinds[a.Kind].Inputs) == 0
	}
	s.data = &input.Set{}
	s.rows = []int64{}
	r.add = s.encoder()
	if plain {
		if err := r.encodeOrdinary(); err != nil {
			return err
		}
	}
	for i := range t.Kinds {
		r.messages[i] = -1
		if used[i] && len(t.Kinds[i].Inputs) > 0 {
			if err := r.encodeKind(i, &t.Kinds[i]); err != nil {
				return fmt.Errorf("%s: %w", s.settings.Plan.Replay, err)
			}
		}
	}
	r.arrange(t)
	if t.Dropped > 0 {
		s.data.Notes = append(s.data.Notes, fmt.Sprintf("%s lacks %d requests that were dropped when it was recorded", s.settings.Plan.Replay, t.Dropped))
	}
	return nil
}

// encodeOrdinary makes the messages that a run without a trace would send.
func (r *replayer) encodeOrdinary() error {
	s := r.session
	var err error
	if s.data, err = input.Load(r.ports, s.settings.Input); err != nil {
		return err
	}
	if err := s.encodeWith(r.add, nil); err != nil {
		return err
	}
	r.ordinary = len(s.messages)
	for range r.ordinary {
		s.rows = append(s.rows, int64(s.settings.Plan.BatchSize))
	}
	return nil
}

// arrange chooses the message of each arrival.
func (r *replayer) arrange(t *arrivals.Trace) {
	s := r.session
	turn := 0
	for _, a := range t.Arrivals {
		i := r.messages[a.Kind]
		if i < 0 {
			i = turn % r.ordinary
			turn++
		}
		s.order = append(s.order, int32(i))
	}
}

// encodeKind makes the message of a kind: its shapes, with generated values.
func (r *replayer) encodeKind(index int, k *arrivals.Kind) error {
	s := r.session
	rows := int64(1)
	var tensors []client.Tensor
	for i, in := range k.Inputs {
		port, shape, n, err := r.fit(in)
		if err != nil {
			return err
		}
		if i > 0 && n != rows {
			return fmt.Errorf("a request has %d rows of %q and %d of %q", rows, k.Inputs[0].Name, n, in.Name)
		}
		rows = n
		t, err := r.value(port, shape, rows, in.Bytes)
		if err != nil {
			return err
		}
		tensors = append(tensors, t)
	}
	for _, p := range r.ports {
		if !p.Optional && !slices.ContainsFunc(k.Inputs, func(in arrivals.Input) bool { return in.Name == p.Name }) {
			return fmt.Errorf("a request has no input %q, which the model wants", p.Name)
		}
	}
	request := client.Request{Model: s.settings.Model, Version: s.settings.Version, Inputs: tensors, Parameters: s.parameters()}
	r.messages[index] = len(s.messages)
	s.requests, s.rows = append(s.requests, request), append(s.rows, rows)
	return r.add(&request)
}

// fit finds the model's input and splits the batch dimension off the shape.
func (r *replayer) fit(in arrivals.Input) (input.Port, tensor.Shape, int64, error) {
	i := slices.IndexFunc(r.ports, func(p input.Port) bool { return p.Name == in.Name })
	if i < 0 {
		return input.Port{}, nil, 0, fmt.Errorf("a request has an input %q, which the model does not", in.Name)
	}
	port, shape, rows := r.ports[i], tensor.Shape(in.Shape), int64(1)
	if limit := r.session.target.MaxBatch; limit > 0 {
		if len(shape) == 0 || shape[0] < 1 || shape[0] > int64(limit) {
			return port, nil, 0, fmt.Errorf("input %q of shape %s: the model takes 1 to %d rows", in.Name, shape, limit)
		}
		rows, shape = shape[0], shape[1:]
	}
	if !port.Shape.Accepts(shape) {
		return port, nil, 0, fmt.Errorf("input %q of shape %s does not fit the model's %s", in.Name, shape, port.Shape)
	}
	return port, shape, rows, nil
}

// value generates an input of a shape; strings have the recorded length.
func (r *replayer) value(p input.Port, shape tensor.Shape, rows, size int64) (client.Tensor, error) {
	o := r.session.settings.Input
	p.Optional = false
	o.Shapes = map[string]tensor.Shape{p.Name: shape}
	n, ok := append(tensor.Shape{rows}, shape...).Elements()
	if p.Type == tensor.Bytes && ok && n > 0 && size > 0 {
		o.StringLength, o.StringData = int(max(0, min(size, maxReplayBytes)/n-4)), nil // each has four bytes of length
	}
	each := int64(p.Type.Size())
	if p.Type == tensor.Bytes {
		each = 4 + int64(o.StringLength)
	}
	if !ok || n > maxReplayBytes || r.bytes+n*each > maxReplayBytes {
		return client.Tensor{}, fmt.Errorf("the different requests of the trace are more than %d MiB together; replay a part of it", maxReplayBytes>>20)
	}
	r.bytes += n * each
	set, err := input.Load([]input.Port{p}, o)
	if err != nil {
		return client.Tensor{}, err
	}
	list, err := set.Requests(int(rows), r.session.target.MaxBatch > 0)
	if err != nil {
		return client.Tensor{}, err
	}
	return list[0][0], nil
}
