// Package modelserver is the REST dialect of Multi Model Server and TorchServe:
// predictions, management and, for TorchServe, metrics. It decodes requests for a
// modelstore.Store and for the engine that runs its models. A Server has what the
// listeners of one process share; Dialect returns the dialect of one listener.
package modelserver

import (
	"log/slog"
	"strings"
	"time"

	"shoal/internal/engine"
	"shoal/internal/inflight"
	"shoal/internal/modelstore"
	"shoal/internal/protocol/httpserver"
)

// An API is a set of routes. A listener may have several.
type API uint8

// The APIs.
const (
	Inference API = 1 << iota
	Management
	Metrics
)

// Options are the settings of a server.
type Options struct {
	Engine *engine.Engine
	Store  *modelstore.Store
	// MaxRequestSize is the most bytes of a request's body.
	MaxRequestSize int64
	Memory         *inflight.Pool
	// The CORS headers of every answer; empty for none.
	AllowOrigin, AllowMethods, AllowHeaders string
	// ModelAPI lets clients of TorchServe register and unregister models.
	ModelAPI bool
	// Keys are checked when they are not nil.
	Keys *Keys
	// OpenInference adds the routes /v2, /v2/health/live and /v2/health/ready.
	OpenInference bool
	// Access, unless nil, gets a line for each request.
	Access func(line string)
	// Meter has the server's metrics; nil for none. ShowMetrics shows them to
	// Prometheus.
	Meter       *Meter
	ShowMetrics bool
	Log         *slog.Logger
}

// A Server has what the dialects of a process's listeners share.
type Server struct {
	opt  Options
	ts   bool
	cors string // header lines
}

// New returns a server.
func New(opt Options) *Server {
	s := &Server{opt: opt, ts: opt.Store.Dialect() == modelstore.TorchServe}
	for _, h := range []struct{ name, value string }{
		{"access-control-allow-origin", opt.AllowOrigin},
		{"access-control-allow-methods", opt.AllowMethods},
		{"access-control-allow-headers", opt.AllowHeaders},
	} {
		if h.value != "" {
			s.cors += h.name + ": " + h.value + "\r\n"
		}
	}
	return s
}

// HTTP returns o with what the originals' limits on requests are.
func HTTP(o httpserver.Options, maxRequestSize int64) httpserver.Options {
	o.MaxBodySize, o.MaxHeaderSize = maxRequestSize, maxLine+maxHeaders
	o.SayKeepAlive, o.AnswerAll, o.NoHost, o.KeepTooLarge = true, true, true, true
	return o
}

// The most bytes of a request's line, and of its headers.
const (
	maxLine    = 4096
	maxHeaders = 8192
)

// Dialect returns the dialect of a listener with these APIs.
func (s *Server) Dialect(apis API) httpserver.Dialect { return &handler{Server: s, apis: apis} }

// A handler answers the requests of a listener.
type handler struct {
	*Server
	apis API
}

// Model implements httpserver.Dialect.
func (h *handler) Model(target []byte) (string, int64) {
	path, _, _ := strings.Cut(string(target), "?")
	seg := split(path)
	if len(seg) > 2 && (seg[1] == "predictions" || seg[1] == "models" || seg[1] == "explanations") {
		return seg[2], -1
	}
	return "", -1
}

// Serve implements httpserver.Dialect.
func (h *handler) Serve(x *httpserver.Exchange) error {
	begin := time.Now()
	id := newID()
	c := &call{h: h, x: x, id: id}
	err := c.serve()
	code := c.status
	if err != nil {
		e := asError(err)
		code = e.Status
		err = &answered{e, id}
	}
	if h.opt.Meter != nil {
		h.opt.Meter.Answered(code)
	}
	if h.opt.Access != nil {
		h.opt.Access(accessLine(x, code, time.Since(begin)))
	}
	return err
}

const fixedHeaders = "Pragma: no-cache\r\nCache-Control: no-cache; no-store, must-revalidate, private\r\nExpires: Thu, 01 Jan 1970 00:00:00 UTC\r\n"

// appendHeaders appends the headers of every answer.
func (s *Server) appendHeaders(b []byte, id string) []byte {
	b = append(b, "x-request-id: "...)
	b = append(b, id...)
	b = append(b, "\r\n"...)
	b = append(b, fixedHeaders...)
	return append(b, s.cors...)
}

// AppendError implements httpserver.Dialect.
func (h *handler) AppendError(b []byte, err error) ([]byte, httpserver.ErrorHead) {
	e := asError(err)
	if e.Status == 413 { // without a body, as the original
		return b, httpserver.ErrorHead{Status: 413}
	}
	id := ""
	if a, ok := err.(*answered); ok {
		id = a.id
	} else {
		id = newID()
	}
	b = append(b, h.opt.Store.Encode(struct {
		Code    int    `json:"code"`
		Type    string `json:"type"`
		Message string `json:"message,omitempty"`
	}{e.Status, e.Type, e.Text})...)
	return append(b, '\n'), httpserver.ErrorHead{
		Status: e.Status, Phrase: phrase(e.Status), Type: jsonType, Headers: h.appendHeaders(nil, id), Close: e.Status >= 400,
	}
}
