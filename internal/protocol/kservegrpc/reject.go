package kservegrpc

import (
	"context"

	"google.golang.org/grpc/peer"

	"shoal/internal/infer"
	"shoal/internal/reject"
	"shoal/internal/status"
)

// rejected reports a request, unless err is nil or came from the engine. The
// transport reports what it rejects itself.
func (s *Server) rejected(ctx context.Context, model, version string, err error) {
	reason := reject.ReasonOf(err)
	if reason == reject.None {
		return
	}
	r := reject.Request{Protocol: reject.GRPC, Model: model, Version: infer.LatestVersion, Reason: reason, Text: status.Public(err)}
	if n, err := parseVersion(version); err == nil {
		r.Version = n
	}
	if p, ok := peer.FromContext(ctx); ok {
		r.Client = p.Addr
	}
	s.opt.Server.Rejects.Request(r)
}

// asksModel is a request about a model that has no inference.
type asksModel interface {
	GetName() string
	GetVersion() string
}

// rejectedCall reports a unary call other than inference.
func (s *Server) rejectedCall(ctx context.Context, req any, err error) {
	if m, ok := req.(asksModel); ok {
		s.rejected(ctx, m.GetName(), m.GetVersion(), err)
		return
	}
	s.rejected(ctx, "", "", err)
}
