package kservegrpc

import (
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
)

// testLog writes the server's log to the test's.
func testLog(tb testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(tb.Output(), nil)) }

// mended are the recorded answers that ours differ from on purpose.
var mended = map[string]string{
	"grpc_infer_extra_input": "[request id: 42] expected 2 inputs but got 3 inputs for model 'simple'. Got input(s) ['INPUT0','INPUT1','INPUT2'], but missing required input(s) []. Please provide all required input(s).",
}

func TestServerAnswersAsRecorded(t *testing.T) {
	s := startServer(t, Options{})
	for _, c := range recordedCases(t) {
		t.Run(c.name, func(t *testing.T) {
			var resp proto.Message
			if c.response != nil {
				resp = c.response.ProtoReflect().New().Interface()
			} else {
				resp = c.request.ProtoReflect().New().Interface() // not filled in
			}
			err := s.conn.Invoke(t.Context(), c.method, c.request, resp)
			st := grpcstatus.Convert(err)
			want := c.details
			if text, ok := mended[c.name]; ok {
				want = text
			}
			if st.Code() != c.code || st.Message() != want {
				t.Fatalf("got %v %q, want %v %q", st.Code(), st.Message(), c.code, want)
			}
			if c.code != codes.OK {
				return
			}
			if diff := cmp.Diff(c.response, resp, protocmp.Transform()); diff != "" {
				t.Errorf("response differs (-want +got):\n%s", diff)
			}
		})
	}
}
