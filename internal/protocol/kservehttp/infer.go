package kservehttp

import (
	"strconv"

	"github.com/valyala/fasthttp"

	"shoal/internal/engine"
	"shoal/internal/reject"
	"shoal/internal/status"
)

var headerLength = []byte("Inference-Header-Content-Length")

// infer answers an inference request.
func (h *handler) infer(ctx *fasthttp.RequestCtx, c *conn, rt route) error {
	lease, err := h.engine.Acquire(rt.model, rt.version)
	if err != nil {
		return err
	}
	a := newAnswer(h.memory, lease)
	sent := false
	defer func() {
		if !sent {
			a.release() // also after a panic: the version waits for its leases to end
		}
	}()
	if lease.Decoupled() {
		return status.Rejectf(reject.Unsupported, status.Unsupported, "HTTP end point doesn't support models with decoupled transaction policy")
	}
	if err := h.run(ctx, c, lease.Version, a); err != nil {
		return err
	}
	a.send(ctx)
	sent = true
	return nil
}

// run reads a request, has it run and encodes its response into a.
func (h *handler) run(ctx *fasthttp.RequestCtx, c *conn, v *engine.Version, a *inferAnswer) error {
	accepted := acceptedEncoding(ctx.Request.Header.PeekCanonical(acceptEncoding))
	json, err := h.receiveInfer(ctx, c, a)
	if err != nil {
		return err
	}
	r := a.request
	r.Model, r.Version = v.Name(), v.Number()
	if json == 0 {
		err = decodeRaw(r, v.Signature(), a.body.b, h.maxInput)
		a.allBinary = true
	} else {
		d := newDecoder(r, v.Name(), h.maxInput, h.engine.SharedMemory())
		err = d.decode(a.body.b[:json], a.body.b[json:])
		a.allBinary = d.allBinary
		d.release()
	}
	if err == nil && h.forward != nil {
		err = forwardHeaders(r, ctx.Request.Header.RawHeaders(), h.forward)
	}
	if err != nil {
		return status.Reject(reject.BadInput, err)
	}
	if err := v.Infer(c.ctx, r); err != nil {
		return err
	}
	if err := a.encode(); err != nil {
		return err
	}
	return a.compress(accepted)
}

// receiveInfer reads the body of an inference request into a and returns how
// much of it is JSON; 0 means that it is the data of the model's one input.
func (h *handler) receiveInfer(ctx *fasthttp.RequestCtx, c *conn, a *inferAnswer) (int, error) {
	enc, ok := contentEncoding(ctx.Request.Header.PeekCanonical(contentEncodingKey))
	if !ok {
		return 0, errEncoding
	}
	value := ctx.Request.Header.PeekCanonical(headerLength)
	json := -1 // all of the body
	if value != nil {
		var err error
		if json, err = parseInt32(value); err != nil {
			return 0, errHeaderInt(string(headerLength), string(value))
		}
	}
	limit, tooLarge := h.maxBody, sizeError(errBodyTooLarge)
	if h.maxInput < limit {
		switch {
		case enc != unpacked:
			limit, tooLarge = h.maxInput, errPackedTooLarge
		case value == nil:
			limit, tooLarge = h.maxInput, errJSONTooLarge
		case json == 0:
			limit, tooLarge = h.maxInput, errRawTooLarge
		}
	}
	var err error
	if a.body, err = receive(ctx, c, limit, tooLarge); err != nil {
		return 0, err
	}
	if enc != unpacked {
		if err := a.decompress(enc, h.maxUnpacked(len(a.body.b))); err != nil {
			return 0, err
		}
	}
	n := len(a.body.b)
	switch {
	case value == nil:
		return n, nil
	case json < 0 || json > n:
		return 0, status.Rejectf(reject.Malformed, status.InvalidArgument, "inference header size should be in range (0, %d), got: %d", n, json)
	}
	return json, nil
}

// parseInt32 reads an integer of 32 bits.
func parseInt32(b []byte) (int, error) {
	n, err := strconv.ParseInt(alias(b), 10, 32)
	return int(n), err
}
