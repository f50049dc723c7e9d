package kservegrpc

import (
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	pb "shoal/internal/protocol/kservegrpc/inferencepb"
)

// An execution is not broken off, so the answer at the deadline must not wait for
// it. Clients have their own clock: only one without tells what the server does.
func TestDeadlineIsAnsweredWhileTheModelRuns(t *testing.T) {
	s := startServer(t, Options{})
	for n, method := range []string{pb.GRPCInferenceService_ModelInfer_FullMethodName, pb.GRPCInferenceService_ModelStreamInfer_FullMethodName} {
		t.Run(method, func(t *testing.T) {
			c := newRawClient(t, s.Addr(), method, hpack.HeaderField{Name: "grpc-timeout", Value: "200m"})
			c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
			if err := c.send(frame(mustMarshal(t, gatedRequest(int32(n))))); err != nil {
				t.Fatal(err)
			}
			for {
				f, err := c.framer.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				if end, ok := f.(*http2.MetaHeadersFrame); ok {
					got := make(map[string]string)
					for _, field := range end.Fields {
						got[field.Name] = field.Value
					}
					if !end.StreamEnded() || got["grpc-status"] != "4" || got["grpc-message"] != "Deadline Exceeded" {
						t.Errorf("got %v, want the end with DEADLINE_EXCEEDED", got)
					}
					break
				}
				if _, reset := f.(*http2.RSTStreamFrame); reset {
					t.Fatal("got the call reset, which clients take for cancelled")
				}
			}
			select {
			case <-s.gate.entered:
				s.gate.pass(int32(n), nil)
			default:
				t.Log("the deadline came before the model ran: the machine is busy")
			}
		})
	}
}
