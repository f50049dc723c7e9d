package kservehttp

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"runtime/debug"
	"strings"
	"sync/atomic"

	"github.com/valyala/fasthttp"

	"shoal/internal/engine"
	"shoal/internal/inflight"
	"shoal/internal/reject"
	"shoal/internal/status"
)

// A handler answers requests.
type handler struct {
	engine   *engine.Engine
	maxInput int64
	maxBody  int64
	maxRatio int64
	memory   *inflight.Pool
	forward  *regexp.Regexp
	restrict restrictions
	log      *slog.Logger
	rejects  *reject.Counter
	closing  *atomic.Bool
}

const (
	jsonType  = "application/json"
	textType  = "text/plain"
	bytesType = "application/octet-stream"
)

// refused is a header that header sets on a request whose body is not to be
// read. No client can send one with a colon in its name.
var refused = []byte(":content-length")

// header looks at a request before its body is read. A body that is too long
// is left alone: there may never be that much of it.
func (h *handler) header(hdr *fasthttp.RequestHeader) (cfg fasthttp.RequestConfig) {
	n := hdr.ContentLength()
	if n != 0 {
		cfg.ReadTimeout = 1 // any: it has fasthttp call SetReadDeadline of the conn
	}
	if int64(n) > h.maxBody {
		hdr.SetCanonical(refused, fmt.Append(nil, n))
		hdr.SetContentLength(0)
		hdr.SetConnectionClose()
	}
	return cfg
}

// refusal returns why header did not let the body be read, if so.
func (h *handler) refusal(hdr *fasthttp.RequestHeader) error {
	if !hdr.ConnectionClose() {
		return nil
	}
	v := hdr.PeekCanonical(refused)
	if v == nil {
		return nil
	}
	n, err := parseInt32(v)
	if err != nil {
		return errHeaderInt("Content-Length", string(v))
	}
	return errBodyTooLarge(int64(n), h.maxBody)
}

// expect answers a client that asks whether to send its body.
func (h *handler) expect(ctx *fasthttp.RequestCtx) int {
	err := h.refusal(&ctx.Request.Header)
	if err == nil {
		return fasthttp.StatusContinue
	}
	h.fail(ctx, err)
	return ctx.Response.StatusCode()
}

// serve answers one request.
func (h *handler) serve(ctx *fasthttp.RequestCtx) {
	c := ctx.Conn().(*conn)
	c.beginBody() // of one without, this was not done yet
	c.unread = ctx.Request.IsBodyStream()
	defer h.finish(ctx, c)
	if err := h.dispatch(ctx, c); err != nil {
		h.fail(ctx, err)
	}
}

// finish makes sure that there is an answer and that the connection is fit for
// another request, or is closed.
func (h *handler) finish(ctx *fasthttp.RequestCtx, c *conn) {
	if p := recover(); p != nil {
		h.fail(ctx, panicError(p))
	}
	c.used.Store(true)
	c.holds.Store(int64(max(ctx.Response.Header.ContentLength(), 0)))
	if !ctx.Response.IsBodyStream() {
		if err := c.claim.Acquire(int64(len(ctx.Response.Body()))); err != nil {
			h.fail(ctx, err)
		}
	}
	if c.unread {
		c.unread = !drain(ctx, c)
	}
	if c.unread || h.closing.Load() || twoLengths(&ctx.Request.Header) {
		ctx.Response.SetConnectionClose()
	}
	if isHTTP10(ctx) {
		ctx.Response.Header.SetProtocol(ctx.Request.Header.Protocol())
	}
	c.phase = phaseIdle
}

func isHTTP10(ctx *fasthttp.RequestCtx) bool {
	return string(ctx.Request.Header.Protocol()) == "HTTP/1.0"
}

func (h *handler) dispatch(ctx *fasthttp.RequestCtx, c *conn) error {
	if err := h.refusal(&ctx.Request.Header); err != nil {
		c.unread = true
		return err
	}
	if !ctx.Request.Header.IsHTTP11() && !isHTTP10(ctx) {
		return errVersion
	}
	rt := parseRoute(ctx.Request.Header.RequestURI())
	if rt.action == actNone {
		return errNoRoute
	}
	a := &actions[rt.action]
	if err := h.restrict.check(a.api, ctx); err != nil {
		return err
	}
	if string(ctx.Request.Header.Method()) != a.method {
		return errNoMethod
	}
	switch rt.action {
	case actInfer:
		return h.infer(ctx, c, rt)
	case actGenerate:
		return h.generate(ctx, c, rt)
	case actGenerateStream:
		return h.generateStream(ctx, c, rt)
	case actLive:
		return h.health(ctx, h.engine.Live())
	case actReady:
		return h.health(ctx, h.engine.Ready())
	case actServer:
		return h.server(ctx)
	case actModel:
		return h.model(ctx, rt)
	case actModelReady:
		return h.modelReady(ctx, rt)
	case actConfig:
		return h.config(ctx, rt)
	case actStats:
		return h.stats(ctx, rt)
	case actIndex:
		return h.index(ctx, c)
	case actLoad:
		return h.load(ctx, c, rt)
	case actShmStatus, actShmRegister, actShmUnregister:
		return h.sharedMemory(ctx, c, rt)
	}
	return h.unload(ctx, c, rt)
}

// twoLengths reports whether a chunked request also has a Content-Length, which
// then means nothing. A proxy in front may have gone by it, and what it took for
// a part of this request would be read as the next one: there must not be one.
func twoLengths(hdr *fasthttp.RequestHeader) bool {
	if hdr.ContentLength() != -1 {
		return false
	}
	_, both := rawValue(hdr.RawHeaders(), "content-length")
	return both
}

// fail answers with an error. What the client is not told goes to the log.
func (h *handler) fail(ctx *fasthttp.RequestCtx, err error) {
	h.logCause(ctx, err)
	code, phrase, text := answer(err)
	h.rejected(ctx, reject.ReasonOf(err), text)
	resp := &ctx.Response
	resp.ResetBody() // not Reset, which would bring the default headers back
	resp.SetStatusCode(code)
	if phrase != "" {
		resp.Header.SetStatusMessage([]byte(phrase))
	}
	if he, ok := errors.AsType[*httpError](err); ok && he.accept != "" {
		resp.Header.Set(fasthttp.HeaderAcceptEncoding, he.accept)
	}
	resp.Header.SetContentType(jsonType)
	var room [512]byte
	resp.SetBody(appendError(room[:0], text))
}

// rejected reports a request that no model got to see.
func (h *handler) rejected(ctx *fasthttp.RequestCtx, reason reject.Reason, text string) {
	if reason == reject.None {
		return
	}
	rt := parseRoute(ctx.Conn().(*conn).target(ctx.Request.Header.RequestURI()))
	h.rejects.Request(reject.Request{
		Protocol: reject.HTTP, Client: ctx.RemoteAddr(), Model: rt.model, Version: rt.version, Reason: reason, Text: text,
	})
	if reason == reject.Timeout {
		h.rejects.Closed(reject.HTTP, reject.ReadTimeout, ctx.RemoteAddr(), text)
	}
}

// logCause logs the private cause of a failure of ours.
func (h *handler) logCause(ctx *fasthttp.RequestCtx, err error) {
	if hasCause(err) {
		h.log.Error("request failed", "method", string(ctx.Method()), "path", string(ctx.RequestURI()), "err", err)
	}
}

// hasCause reports whether err is a failure of ours that the client is not told
// all of.
func hasCause(err error) bool {
	se, ok := errors.AsType[*status.Error](err)
	return ok && se.Cause != nil && se.Code == status.Internal
}

// panicError is what becomes of a panic in a handler.
func panicError(p any) error {
	return status.Wrap(status.Internal, fmt.Errorf("panic: %v\n%s", p, debug.Stack()), "internal error; the server's log has the details")
}

// malformed is told of requests that fasthttp cannot read. One that is no HTTP
// at all gets no answer, nor does silence.
func (h *handler) malformed(ctx *fasthttp.RequestCtx, err error) {
	c := ctx.Conn().(*conn)
	if answer := malformedAnswer(c, err); answer != nil {
		c.unread = true
		h.fail(ctx, answer)
		return
	}
	c.mute = true
	if len(c.head) > 0 {
		h.rejected(ctx, reject.Malformed, "")
	}
}

func malformedAnswer(c *conn, err error) error {
	var ne net.Error
	var small *fasthttp.ErrSmallBuffer
	switch {
	case len(c.head) == 0:
		return nil
	case errors.As(err, &small):
		return &httpError{status: 431, reason: reject.TooLarge, text: "the request's headers are too large; send fewer or raise --http-max-header-size"}
	case errors.As(err, &ne) && ne.Timeout() && c.phase == phaseBody:
		return bodyError(ne)
	case errors.As(err, &ne) && ne.Timeout():
		return &httpError{status: 408, reason: reject.Timeout, text: "the request's headers did not arrive in time; send it faster or raise --http-header-timeout-secs"}
	}
	line, headers, _ := bytes.Cut(c.head, []byte("\r\n"))
	if fields := bytes.Split(line, []byte(" ")); len(fields) != 3 || !bytes.HasPrefix(fields[2], []byte("HTTP/")) {
		return nil
	}
	if v, ok := rawValue(headers, "content-length"); ok {
		if n, err := parseInt32(v); err != nil || n < 0 {
			return errHeaderInt("Content-Length", string(v))
		}
	}
	return errMalformed
}

// rawValue returns the value of a header in the raw text of all.
func rawValue(raw []byte, name string) ([]byte, bool) {
	for line := range bytes.Lines(raw) {
		key, value, ok := bytes.Cut(line, []byte(":"))
		if ok && strings.EqualFold(alias(key), name) {
			return bytes.TrimSpace(value), true
		}
	}
	return nil, false
}
