package kservehttp

import (
	"strconv"

	"shoal/internal/engine"
	"shoal/internal/protocol/compression"
	"shoal/internal/protocol/httpserver"
	"shoal/internal/reject"
	"shoal/internal/status"
)

const headerLength = "Inference-Header-Content-Length"

var headerLengthKey = []byte(headerLength)

// infer answers an inference request.
func (h *handler) infer(x *httpserver.Exchange, rt route) error {
	lease, err := h.engine.Acquire(rt.model, rt.version)
	if err != nil {
		return err
	}
	a := newAnswer(h.server.Memory, lease)
	sent := false
	defer func() {
		if !sent {
			a.release() // also after a panic: the version waits for its leases to end
		}
	}()
	if lease.Decoupled() {
		return status.Rejectf(reject.Unsupported, status.Unsupported, "HTTP end point doesn't support models with decoupled transaction policy")
	}
	if h.engine.Tracer().On() {
		h.trace(x, a, lease.Name())
	}
	if err := h.run(x, lease.Version, a); err != nil {
		a.trace.Fail(err)
		return err
	}
	a.send(x)
	sent = true
	return nil
}

// run reads a request, has it run and encodes its response into a.
func (h *handler) run(x *httpserver.Exchange, v *engine.Version, a *inferAnswer) error {
	accepted := x.AcceptedEncoding()
	json, err := h.receiveInfer(x, a)
	if err != nil {
		return err
	}
	a.trace.ReadDone()
	r := a.request
	r.Model, r.Version = v.Name(), v.Number()
	if json == 0 {
		err = decodeRaw(r, v.Signature(), a.body.B, h.maxInput)
		a.allBinary = true
	} else {
		d := newDecoder(r, v.Name(), h.maxInput, h.engine.SharedMemory())
		err = d.decode(a.body.B[:json], a.body.B[json:])
		a.allBinary = d.allBinary
		d.release()
	}
	if err == nil && h.forward != nil {
		err = forwardHeaders(r, x.Header.RawHeaders(), h.forward)
	}
	if err != nil {
		return status.Reject(reject.BadInput, err)
	}
	access := x.Access()
	if access != nil {
		r.Spent = &access.Spent
		access.Model(v.Name(), v.Number())
	}
	err = v.Infer(x.Context(), r)
	access.Ran(r)
	if err != nil {
		return err
	}
	if err := a.encode(); err != nil {
		return err
	}
	return a.compress(accepted)
}

// receiveInfer reads the body of an inference request into a and returns how
// much of it is JSON; 0 means that it is the data of the model's one input.
func (h *handler) receiveInfer(x *httpserver.Exchange, a *inferAnswer) (int, error) {
	enc, err := x.ContentEncoding()
	if err != nil {
		return 0, err
	}
	value := x.Header.PeekCanonical(headerLengthKey)
	json := -1 // all of the body
	if value != nil {
		if json, err = parseInt32(value); err != nil {
			return 0, httpserver.ErrHeaderInt(headerLength, string(value))
		}
	}
	limit, tooLarge := h.server.MaxBodySize, httpserver.SizeError(httpserver.ErrBodyTooLarge)
	if h.maxInput < limit {
		switch {
		case enc != compression.Identity:
			limit, tooLarge = h.maxInput, errPackedTooLarge
		case value == nil:
			limit, tooLarge = h.maxInput, errJSONTooLarge
		case json == 0:
			limit, tooLarge = h.maxInput, errRawTooLarge
		}
	}
	if a.body, err = x.ReceiveAligned(json, limit, tooLarge); err != nil {
		return 0, err
	}
	if enc != compression.Identity {
		body, err := x.Decompress(a.body, enc, h.maxInput)
		if err != nil {
			return 0, err
		}
		a.body = body
	}
	n := len(a.body.B)
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
