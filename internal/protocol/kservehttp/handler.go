package kservehttp

import (
	"cmp"
	"net"
	"regexp"

	"shoal/internal/engine"
	"shoal/internal/protocol/httpserver"
	"shoal/internal/protocol/kserve"
)

// Options say how a server serves. The zero value of a limit stands for the
// default that its line names.
type Options struct {
	// Server says how HTTP itself is served.
	Server httpserver.Options
	// MaxInputSize is the most bytes that the JSON of a request, a tensor given
	// in JSON, a raw request or a decompressed body may have; 64 MiB.
	MaxInputSize int64
	// Forward picks the request headers, by name, that become parameters of an
	// inference request; nil for none.
	Forward *regexp.Regexp
	// Restrictions close APIs to requests without a certain header.
	Restrictions kserve.Restrictions
}

// Start serves eng on the listeners, which become the server's, until Close. TCP
// and Unix sockets will do.
func Start(opt Options, eng *engine.Engine, listeners ...net.Listener) (*httpserver.Server, error) {
	opt.Server = opt.Server.WithDefaults()
	h := &handler{
		engine: eng, server: opt.Server, maxInput: cmp.Or(opt.MaxInputSize, 64<<20),
		forward: opt.Forward, restrict: opt.Restrictions,
	}
	return httpserver.Start(opt.Server, h, listeners...)
}

// A handler is the dialect: it answers requests.
type handler struct {
	engine   *engine.Engine
	server   httpserver.Options
	maxInput int64
	forward  *regexp.Regexp
	restrict kserve.Restrictions
}

const (
	jsonType  = "application/json"
	textType  = "text/plain"
	bytesType = "application/octet-stream"
)

// Model implements httpserver.Dialect.
func (h *handler) Model(target []byte) (string, int64) {
	rt := parseRoute(target)
	return rt.model, rt.version
}

// Serve implements httpserver.Dialect.
func (h *handler) Serve(x *httpserver.Exchange) error {
	rt := parseRoute(x.Header.RequestURI())
	if rt.action == actNone {
		return errNoRoute
	}
	a := &actions[rt.action]
	if r := h.restrict[a.api]; r != nil && !r.Opens(x.Header.Peek(r.Header)) {
		return errRestricted(r.Header)
	}
	if !a.takes(string(x.Header.Method())) {
		return errNoMethod
	}
	switch rt.action {
	case actInfer:
		return h.infer(x, rt)
	case actGenerate:
		return h.generate(x, rt)
	case actGenerateStream:
		return h.generateStream(x, rt)
	case actLive:
		return h.health(x, h.engine.Live())
	case actReady:
		return h.health(x, h.engine.Ready())
	case actServer:
		return h.metadata(x)
	case actModel:
		return h.model(x, rt)
	case actModelReady:
		return h.modelReady(x, rt)
	case actConfig:
		return h.config(x, rt)
	case actStats:
		return h.stats(x, rt)
	case actIndex:
		return h.index(x)
	case actLoad:
		return h.load(x, rt)
	case actTrace:
		return h.traceSetting(x, rt)
	case actLogging:
		return h.logging(x)
	case actShmStatus, actShmRegister, actShmUnregister:
		return h.sharedMemory(x, rt)
	}
	return h.unload(x, rt)
}

// reply answers with a JSON text, which becomes the response's.
func reply(x *httpserver.Exchange, json []byte) {
	x.SetType(jsonType)
	x.SetBody(json)
}
