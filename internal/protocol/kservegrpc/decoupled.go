package kservegrpc

import (
	"shoal/internal/engine"
	"shoal/internal/infer"
)

// runDecoupled answers one request to a decoupled model, part by part, once the
// one that it must follow is answered.
func (st *inferStream) runDecoupled(m *message, v *engine.Version, a, before *answer) {
	defer close(a.done)
	defer m.release()
	t := m.trace
	defer t.End()
	st.await(before)
	d := decoupled{inferStream: st, m: m}
	err := d.infer(v)
	if err != nil && !d.over {
		t.Fail(err)
		d.fail(v, err, true)
	}
	st.logAccess(m, d.bytes, err)
}

// decoupled is a request to a decoupled model on its way.
type decoupled struct {
	*inferStream
	m     *message
	over  bool  // the last part is with the writer
	bytes int64 // of the answers
}

// infer runs the request and hands its responses to the writer.
func (d *decoupled) infer(v *engine.Version) (err error) {
	defer catch(&err)
	if err := d.server.fill(d.ctx, d.m); err != nil {
		return err
	}
	return v.InferStream(d.ctx, d.m.req, func(resp *infer.Response, final bool) error {
		switch {
		case resp == nil && !d.m.emptyFinal:
			return d.give(part{last: true})
		case resp == nil:
			resp = &infer.Response{Model: v.Name(), Version: v.Number()}
		case resp.Err != nil:
			return d.fail(v, resp.Err, final)
		}
		out, err := d.server.encoder.stream(reply{resp: resp, id: d.m.id, final: finalMark(final)}, d.room.bytes.Load())
		if err != nil {
			return d.fail(v, err, final)
		}
		return d.give(part{reply: out, last: final})
	})
}

// fail tells the client of an error, after which more may come unless it is
// the last. The model is named when the request got as far as that.
func (d *decoupled) fail(v *engine.Version, err error, last bool) error {
	r := reply{resp: new(infer.Response), id: d.m.id}
	if d.m.req.Stream != nil {
		r.resp.Model, r.resp.Version, r.final = v.Name(), noVersion, finalMark(last)
	}
	p := part{last: last}
	p.reply, p.err = d.failure(d.m, r, err)
	return d.give(p)
}

// give waits until the writer takes p.
func (d *decoupled) give(p part) error {
	d.bytes += int64(p.reply.len())
	if p.reply != nil {
		d.m.trace.Sending()
	}
	if p.last {
		d.over, p.size = true, d.m.data.Len()
	}
	select {
	case d.parts <- p:
		return nil
	case <-d.ctx.Done():
		p.reply.free()
		return d.ctx.Err()
	}
}
