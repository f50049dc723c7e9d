package modelserver

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"shoal/internal/accesslog"
	"shoal/internal/infer"
	"shoal/internal/modelstore"
	"shoal/internal/protocol/httpserver"
	"shoal/internal/trace"
)

// A target is what a request asks of which model.
type target struct {
	model, version string
	query          bool   // the handler gets the query's parameters
	explains       string // the header explain; empty for none
	urlPath        bool   // TorchServe adds the header url_path
	path           string // its value
}

// tooLarge is the error of a body over the limit.
func tooLarge(int64, int64) error { return fault(413, "", "") }

// predict answers a request with what a model's handler makes of it.
func (c *call) predict(t target) error {
	if c.method == "OPTIONS" {
		return c.modelDescription(t)
	}
	v, err := c.h.opt.Store.Find(t.model, t.version)
	if err != nil {
		return err
	}
	if t.query && c.badQuery != nil {
		return c.badQuery
	}
	body, err := c.x.Receive(c.h.opt.MaxRequestSize, tooLarge)
	if err != nil {
		return err
	}
	defer body.Release()
	parts, err := c.parts(t, body.B)
	if err != nil {
		return err
	}
	return c.run(v, t, parts, len(body.B))
}

// run has the handler run with the parts of a body of that size and sends its answer.
func (c *call) run(v *modelstore.Version, t target, parts []modelstore.Part, size int) (err error) {
	begin := time.Now()
	lease, running, err := c.h.opt.Store.Acquire(c.x.Context(), v, t.version)
	if err != nil {
		return err
	}
	r := infer.NewRequest()
	r.Hold(lease)
	traced := c.trace(running.Name(), begin)
	r.Trace = traced.First()
	sent := false
	defer func() {
		if !sent {
			r.Release()
			traced.Fail(err)
			traced.End()
		}
	}()
	r.Claim = c.h.opt.Memory.Budget().Claim()
	r.Model, r.Version = running.Name(), running.Number()
	if err := modelstore.Pack(r, c.id, c.headers(t, size), parts); err != nil {
		return err
	}
	access := c.x.Access()
	switch {
	case access != nil:
		access.ModelText(v.Name(), v.Number())
		r.Spent = &access.Spent
	case c.h.opt.Meter != nil:
		r.Spent = new(infer.Spent)
	}
	if running.Decoupled() {
		sent = true
		err := c.stream(running, r, traced)
		c.count(v, t, begin, nil, err)
		return err
	}
	err = running.Infer(c.x.Context(), r)
	access.Ran(r)
	if err != nil {
		return running.Fault(r, err)
	}
	c.count(v, t, begin, r.Spent, nil)
	a, err := modelstore.Unpack(&r.Response)
	if err != nil {
		return err
	}
	if a.Kind == modelstore.AnswerError {
		return modelstore.Internal(a.Status, string(a.Body))
	}
	c.head(&a)
	traced.Sending()
	c.x.SetStream(&whole{r, a.Body, traced}, len(a.Body))
	sent = true
	return nil
}

// trace begins to trace a request, if it is one of those that are traced.
func (c *call) trace(model string, since time.Time) *trace.Trace {
	tracer := c.h.opt.Engine.Tracer()
	var caller trace.Parent
	if tracer.Propagates() {
		caller = trace.ParseParent(string(c.x.Header.Peek("Traceparent")), string(c.x.Header.Peek("Tracestate")))
	}
	t := tracer.Sample(model, trace.HTTP, caller, since)
	t.ReadDone()
	return t
}

// count counts a request that a handler answered, or began to answer.
func (c *call) count(v *modelstore.Version, t target, begin time.Time, spent *infer.Spent, err error) {
	if c.h.opt.Meter == nil || err != nil {
		return
	}
	took := time.Since(begin)
	ran := took
	if spent != nil {
		ran = spent.Times(begin).End.Sub(begin)
	}
	c.h.opt.Meter.Inference(v.Name(), t.version, took, ran)
}

// head sets the status and the headers of a handler's answer.
func (c *call) head(a *modelstore.Answer) {
	c.status = a.Status
	if a.Status < 200 || a.Status > 999 {
		c.status = 500 // nothing that HTTP could carry
	}
	c.x.SetStatus(c.status)
	c.x.SetPhrase(string(a.Phrase))
	lines := c.h.appendHeaders(nil, c.id)
	for _, h := range a.Headers {
		if name := string(h.Name); len(name) > 0 && isToken(name) && !isOwn(name) {
			lines = append(lines, name...)
			lines = append(lines, ": "...)
			for _, b := range h.Value {
				if b == '\r' || b == '\n' || b == 0 {
					b = ' '
				}
				lines = append(lines, b)
			}
			lines = append(lines, "\r\n"...)
		}
	}
	c.x.SetHeaders(lines)
	if c.status >= 400 {
		c.x.CloseAfter()
	}
}

// isOwn reports whether a header is the server's alone: another one would break the
// connection.
func isOwn(name string) bool {
	switch len(name) {
	case len("connection"), len("content-length"), len("transfer-encoding"):
		low := string(bytes.ToLower([]byte(name)))
		return low == "connection" || low == "content-length" || low == "transfer-encoding"
	}
	return false
}

func isToken(name string) bool {
	for _, b := range []byte(name) {
		if b <= ' ' || b >= 0x7f || bytes.IndexByte([]byte(`"(),/:;<=>?@[\]{}`), b) >= 0 {
			return false
		}
	}
	return true
}

// A whole is an answer that is written from the model's memory.
type whole struct {
	r     *infer.Request
	body  []byte
	trace *trace.Trace // nil when the request is not traced
}

// WriteTo implements io.WriterTo.
func (w *whole) WriteTo(to io.Writer) (int64, error) {
	n, err := to.Write(w.body)
	return int64(n), err
}

// Close implements io.Closer.
func (w *whole) Close() error {
	w.r.Release()
	w.trace.End()
	return nil
}

// stream sends the parts of an answer as chunks. The first sets status and headers.
func (c *call) stream(running *modelstore.Running, r *infer.Request, traced *trace.Trace) error {
	ctx, cancel := context.WithCancel(c.x.Context())
	s := &parts{cancel: cancel, next: make(chan chunk), done: make(chan struct{}), trace: traced, access: c.x.Access()}
	go s.run(ctx, running, r)
	first, ok := <-s.next
	if !ok || first.err != nil {
		if first.err == nil {
			first.err = modelstore.WorkerDied()
		}
		traced.Fail(first.err)
		_ = s.Close()
		return first.err
	}
	traced.Sending()
	c.head(&first.answer)
	s.first = first.body
	if first.answer.Kind == modelstore.AnswerPart {
		c.x.SetStream(s, -1)
		return nil
	}
	c.x.SetBody(s.first)
	return s.Close()
}

// parts is the body of an answer in parts.
type parts struct {
	first  []byte
	cancel context.CancelFunc
	next   chan chunk
	done   chan struct{}    // closed when the request is released
	trace  *trace.Trace     // nil when the request is not traced
	access *accesslog.Entry // nil when there is no access log
}

type chunk struct {
	answer modelstore.Answer // of the first
	body   []byte
	err    error
}

func (s *parts) run(ctx context.Context, running *modelstore.Running, r *infer.Request) {
	defer close(s.done)
	defer r.Release()
	defer close(s.next)
	send := func(c chunk) error {
		select {
		case s.next <- c:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := running.InferStream(ctx, r, func(resp *infer.Response, _ bool) error {
		if resp == nil {
			return nil
		}
		if resp.Err != nil {
			return resp.Err
		}
		a, err := modelstore.Unpack(resp)
		if err != nil {
			return err
		}
		body := bytes.Clone(a.Body) // the response is released when this returns
		if a.Kind == modelstore.AnswerError {
			return modelstore.Internal(a.Status, string(body))
		}
		a.Phrase, a.Body = bytes.Clone(a.Phrase), nil
		for i := range a.Headers {
			a.Headers[i] = modelstore.Header{Name: bytes.Clone(a.Headers[i].Name), Value: bytes.Clone(a.Headers[i].Value)}
		}
		return send(chunk{answer: a, body: body})
	})
	s.access.Ran(r)
	if err != nil {
		_ = send(chunk{err: running.Fault(r, err)})
	}
}

// WriteTo implements io.WriterTo.
func (s *parts) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(s.first)
	total := int64(n)
	for err == nil {
		c, ok := <-s.next
		if !ok {
			return total, nil
		}
		if c.err != nil {
			return total, c.err // the client sees that the answer is cut
		}
		n, err = w.Write(c.body)
		total += int64(n)
	}
	return total, err
}

// Close implements io.Closer.
func (s *parts) Close() error {
	s.cancel()
	<-s.done
	s.trace.End()
	return nil
}

// headers returns the request's headers with the names that the client wrote, and
// what the server adds. Of a repeated one the last counts.
func (c *call) headers(t target, size int) []modelstore.Header {
	list := make([]modelstore.Header, 0, 16)
	chunked := c.x.Header.ContentLength() == -1
	for line := range bytes.Lines(c.x.Header.RawHeaders()) {
		name, value, ok := bytes.Cut(line, []byte(":"))
		switch {
		case !ok, chunked && bytes.EqualFold(name, []byte("transfer-encoding")), bytes.EqualFold(name, []byte("expect")): // dealt with
			continue
		}
		list = append(list, modelstore.Header{Name: name, Value: latin1(bytes.TrimSpace(value))})
	}
	add := func(name, value string) {
		list = append(list, modelstore.Header{Name: []byte(name), Value: []byte(value)})
	}
	if chunked {
		add("content-length", strconv.Itoa(size))
	}
	if t.explains != "" {
		add("explain", t.explains)
	}
	if c.h.ts && t.urlPath {
		add("url_path", t.path)
	}
	return list
}

// latin1 returns the text of a header's bytes, each of which is a character.
func latin1(b []byte) []byte {
	for i, c := range b {
		if c < 0x80 {
			continue
		}
		out := append(make([]byte, 0, 2*len(b)), b[:i]...)
		for _, c := range b[i:] {
			out = utf8.AppendRune(out, rune(c))
		}
		return out
	}
	return b
}

// invocations answers a request that may name its model in several places.
func (c *call) invocations() error {
	s := c.h.opt.Store
	if c.badQuery != nil {
		return c.badQuery
	}
	name, _ := c.param("model_name")
	body, err := c.x.Receive(c.h.opt.MaxRequestSize, tooLarge)
	if err != nil {
		return err
	}
	defer body.Release()
	parts, err := c.parts(target{query: true}, body.B)
	if err != nil {
		return err
	}
	if name == "" {
		if v := s.Default(); v != nil {
			name = v.Name()
		}
	}
	if name == "" && c.h.ts {
		for _, p := range parts {
			if p.Name == "model_name" {
				name = string(p.Value)
			}
		}
	}
	if name == "" {
		return errBad("Parameter model_name is required.")
	}
	t := target{model: name, query: true}
	if c.method == "OPTIONS" {
		return c.modelDescription(t)
	}
	v, err := s.Find(name, "")
	if err != nil {
		return err
	}
	return c.run(v, t, parts, len(body.B))
}

// askDescription asks the handler for its part of a model's description. What is no
// JSON object counts as an empty one.
func (h *handler) askDescription(ctx context.Context, v *modelstore.Version, headers []modelstore.Header) (json.RawMessage, error) {
	lease, running, err := h.opt.Store.Acquire(ctx, v, "")
	if err != nil {
		return nil, err
	}
	r := infer.NewRequest()
	r.Hold(lease)
	defer r.Release()
	r.Claim = h.opt.Memory.Budget().Claim()
	r.Model, r.Version = running.Name(), running.Number()
	headers = append(headers, modelstore.Header{Name: []byte("describe"), Value: []byte("True")})
	if err := modelstore.Pack(r, newID(), headers, nil); err != nil {
		return nil, err
	}
	said := json.RawMessage("{}")
	err = running.InferStream(ctx, r, func(resp *infer.Response, _ bool) error {
		if resp == nil {
			return nil
		}
		if resp.Err != nil {
			return resp.Err
		}
		a, err := modelstore.Unpack(resp)
		if err != nil {
			return err
		}
		if a.Kind == modelstore.AnswerError {
			return modelstore.Internal(a.Status, string(a.Body))
		}
		if json.Unmarshal(a.Body, new(map[string]any)) == nil {
			said = bytes.Clone(a.Body)
		}
		return nil
	})
	if err != nil {
		return nil, running.Fault(r, err)
	}
	return said, nil
}

var _ httpserver.Dialect = (*handler)(nil)
