package load

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"shoal/internal/protocol/kservegrpc/inferencepb"
)

// conn returns one connection of a link.
func conn(t *testing.T, l Link) Conn {
	t.Helper()
	conns, err := l.Conns(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conns[0].Close() })
	return conns[0]
}

func TestExchangeSaysWhenItsPartsHappened(t *testing.T) {
	overHTTP := NewHTTPLink(serve(t, echo), nil)
	overGRPC := NewGRPCLink(serveStream(t, nil))
	overH2 := NewH2Link(overGRPC.address, H2Options{})
	overStream := NewH2Link(overGRPC.address, H2Options{Stream: true})
	for name, c := range map[string]struct {
		link    Link
		message *Message
	}{
		"http":   {overHTTP, overHTTP.Message("/x", nil, []byte("hello"))},
		"grpc":   {overGRPC, overGRPC.Message(encoded(t, "a"))},
		"h2":     {overH2, h2Message(t, overH2, encoded(t, "a"))},
		"stream": {overStream, h2Message(t, overStream, encoded(t, "a"))},
	} {
		conn := conn(t, c.link)
		if err := conn.Connect(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var x Exchange
		for range 3 {
			before := Now()
			if err := conn.Do(t.Context(), c.message, &x); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if x.Start < before || x.Sent < x.Start || x.First < x.Sent || x.Done < x.First || Now() < x.Done {
				t.Errorf("%s: got %v, %v, %v, %v after %v, want rising times", name, x.Start, x.Sent, x.First, x.Done, before)
			}
		}
	}
}

func TestHTTPErrorHasTheServersWords(t *testing.T) {
	l := NewHTTPLink(serve(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"error":"no"}`, http.StatusBadRequest)
	}), nil)
	c := conn(t, l)
	for range 2 {
		var status *StatusError
		err := c.Do(t.Context(), l.Message("/x", nil, nil), &Exchange{})
		if !errors.As(err, &status) || status.Code != 400 || !strings.Contains(string(status.Body), `{"error":"no"}`) {
			t.Errorf("got %v, want HTTP 400 and what the server said", err)
		}
	}
}

func TestHTTPOverTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(echo))
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	l := NewHTTPLink(strings.TrimPrefix(s.URL, "https://"), &tls.Config{RootCAs: roots})
	x := Exchange{Keep: true}
	if err := conn(t, l).Do(t.Context(), l.Message("/x", nil, []byte("hello")), &x); err != nil || string(x.Answer) != "hello" {
		t.Errorf("got %q, %v, want hello", x.Answer, err)
	}
	strange := NewHTTPLink(l.address, &tls.Config{})
	if err := conn(t, strange).Connect(t.Context()); !errors.Is(err, errConnect) {
		t.Errorf("an unknown authority: got %v, want that it cannot connect", err)
	}
}

func TestConnectSaysThatNobodyListens(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(echo))
	address := strings.TrimPrefix(s.URL, "http://")
	s.Close()
	for name, l := range map[string]Link{"http": NewHTTPLink(address, nil), "grpc": NewGRPCLink(address), "h2": NewH2Link(address, H2Options{})} {
		if err := conn(t, l).Connect(t.Context()); !errors.Is(err, errConnect) {
			t.Errorf("%s: got %v, want that it cannot connect", name, err)
		}
	}
}

func h2Message(t *testing.T, l *H2Link, request []byte) *Message {
	t.Helper()
	m, err := l.Message(request)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// encoded returns an encoded request with that id.
func encoded(t *testing.T, id string) []byte {
	t.Helper()
	b, err := proto.Marshal(&inferencepb.ModelInferRequest{ModelName: "m", Id: id})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A streamer answers the requests of a stream as it is told, with an echo of the
// id unless told.
type streamer struct {
	echoService
	answer func(r *inferencepb.ModelInferRequest, send func(*inferencepb.ModelStreamInferResponse)) error
}

func (s *streamer) ModelStreamInfer(stream inferencepb.GRPCInferenceService_ModelStreamInferServer) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.answer(r, func(m *inferencepb.ModelStreamInferResponse) { stream.Send(m) })
		}
		if err != nil {
			return err
		}
	}
}

func serveStream(t *testing.T, answer func(r *inferencepb.ModelInferRequest, send func(*inferencepb.ModelStreamInferResponse)) error) string {
	t.Helper()
	if answer == nil {
		answer = func(r *inferencepb.ModelInferRequest, send func(*inferencepb.ModelStreamInferResponse)) error {
			send(&inferencepb.ModelStreamInferResponse{InferResponse: &inferencepb.ModelInferResponse{Id: r.Id}})
			return nil
		}
	}
	return serveGRPC(t, &streamer{answer: answer})
}

func outputs() []*inferencepb.ModelInferResponse_InferOutputTensor {
	return []*inferencepb.ModelInferResponse_InferOutputTensor{{Name: "OUT"}}
}

// final marks an answer as the last to its request.
func final() map[string]*inferencepb.InferParameter {
	return map[string]*inferencepb.InferParameter{
		"other":                 {ParameterChoice: &inferencepb.InferParameter_BoolParam{BoolParam: true}},
		"triton_final_response": {ParameterChoice: &inferencepb.InferParameter_BoolParam{BoolParam: true}},
	}
}

func TestStreamAnswersComeOneForEachRequest(t *testing.T) {
	address := serveStream(t, func(r *inferencepb.ModelInferRequest, send func(*inferencepb.ModelStreamInferResponse)) error {
		switch r.Id {
		case "fault":
			send(&inferencepb.ModelStreamInferResponse{ErrorMessage: "no such model"})
		case "break":
			return io.ErrUnexpectedEOF
		default:
			send(&inferencepb.ModelStreamInferResponse{InferResponse: &inferencepb.ModelInferResponse{Id: r.Id, Outputs: outputs()}})
		}
		return nil
	})
	l := NewH2Link(address, H2Options{Stream: true})
	c := conn(t, l)
	x := Exchange{Keep: true}
	for i, step := range []struct{ id, fault string }{
		{"a", ""}, {"b", ""}, {"fault", "no such model"}, {"c", ""}, {"break", "unexpected EOF"}, {"d", ""},
	} {
		err := c.Do(t.Context(), h2Message(t, l, encoded(t, step.id)), &x)
		if step.fault != "" {
			if err == nil || !strings.Contains(err.Error(), step.fault) {
				t.Errorf("request %d, %s: got %v, want %q", i, step.id, err, step.fault)
			}
			continue
		}
		var got inferencepb.ModelInferResponse
		if err != nil || proto.Unmarshal(x.Answer, &got) != nil || got.Id != step.id || len(x.Arrivals) != 1 {
			t.Errorf("request %d: got %v, id %q, %d answers, want %q and one", i, err, got.Id, len(x.Arrivals), step.id)
		}
	}
}

func TestDecoupledStreamWaitsForTheLastAnswer(t *testing.T) {
	address := serveStream(t, func(r *inferencepb.ModelInferRequest, send func(*inferencepb.ModelStreamInferResponse)) error {
		for i := range 3 {
			answer := &inferencepb.ModelInferResponse{Id: fmt.Sprint(r.Id, i), Outputs: outputs()}
			if i == 2 && r.Id == "full" {
				answer.Parameters = final()
			}
			send(&inferencepb.ModelStreamInferResponse{InferResponse: answer})
		}
		if r.Id == "empty" {
			send(&inferencepb.ModelStreamInferResponse{InferResponse: &inferencepb.ModelInferResponse{Parameters: final()}})
		}
		return nil
	})
	l := NewH2Link(address, H2Options{Stream: true, Decoupled: true})
	c := conn(t, l)
	for _, id := range []string{"empty", "full", "empty"} {
		x := Exchange{Keep: true}
		err := c.Do(t.Context(), h2Message(t, l, encoded(t, id)), &x)
		var got inferencepb.ModelInferResponse
		if err != nil || len(x.Arrivals) != 3 || proto.Unmarshal(x.Answer, &got) != nil || got.Id != id+"2" {
			t.Errorf("%s: got %v, %d answers, the last %q, want three and %s2", id, err, len(x.Arrivals), got.Id, id)
		}
	}
}
