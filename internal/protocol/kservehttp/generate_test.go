package kservehttp

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"shoal/internal/backend/backendtest"
	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// scripted is a decoupled model that sends what its input's numbers say: a
// response with that number, an error for -1, and the end after the last. A
// single -2 fails the execution.
func scripted() *backendtest.Fake {
	return &backendtest.Fake{OnRun: func(b *infer.Batch) error {
		for _, r := range b.Requests {
			data := r.Inputs[0].Data.Contiguous(nil)
			for ; len(data) > 0; data = data[4:] {
				if err := play(r.Stream, int32(binary.LittleEndian.Uint32(data))); err != nil {
					return err
				}
			}
			r.Stream.Finish(nil)
		}
		return nil
	}}
}

func play(s *infer.Stream, n int32) error {
	resp := new(infer.Response)
	switch n {
	case -1:
		resp.Err = status.Errorf(status.Unavailable, "bad thing")
	case -2:
		return status.Errorf(status.Internal, "boom")
	default:
		out := resp.AddOutput()
		out.Name, out.Type, out.Shape = "OUT", tensor.Int32, append(out.Shape, 1)
		out.Data = binary.LittleEndian.AppendUint32(nil, uint32(n))
	}
	return s.Send(resp, false)
}

const scriptedModel = `backend: "fake" model_transaction_policy { decoupled: true }
	input { name: "IN" data_type: TYPE_INT32 dims: [-1] } output { name: "OUT" data_type: TYPE_INT32 dims: [1] }`

const notOne = `{"error":"generate expects model to produce exactly 1 response, use generate stream for model that generates various number of responses"}`

func TestGenerate(t *testing.T) {
	addr := start(t, startEngine(t, map[string]string{
		"dec":    scriptedModel,
		"plain":  `backend: "identity" max_batch_size: 4 ` + oneInput("TYPE_FP32", "2, -1"),
		"text":   `backend: "identity" ` + oneInput("TYPE_STRING", "-1"),
		"truth":  `backend: "identity" max_batch_size: 4 ` + oneInput("TYPE_BOOL", "1"),
		"fixed":  `backend: "identity" ` + oneInput("TYPE_INT64", "2"),
		"scalar": `backend: "identity" ` + oneInput("TYPE_UINT8", "-1"),
	}, scripted()), Options{})
	const params = `"param0":"an example string parameter","param1":42,"param2":false,"param3":123.123`
	for _, c := range []struct {
		name, path, body string
		status           int
		want             string
	}{
		{"outputs are sorted among the rest", "plain/generate", `{"INPUT0":[1,2,3,4]}`, 200, `{"OUTPUT0":[1.0,2.0,3.0,4.0],"model_name":"plain","model_version":"1",` + params + `}`},
		{"the id comes back", "plain/generate", `{"id":"x","INPUT0":[1,2]}`, 200, `{"OUTPUT0":[1.0,2.0],"id":"x","model_name":"plain","model_version":"1",` + params + `}`},
		{"a version is named", "plain/versions/1/generate", `{"INPUT0":[1,2]}`, 200, `{"OUTPUT0":[1.0,2.0],"model_name":"plain","model_version":"1",` + params + `}`},
		{"an odd number of elements", "plain/generate", `{"INPUT0":[1,2,3]}`, 400, `{"error":"The schema can not convert input 'INPUT0' to tensor with proper shape"}`},
		{"one element stands for itself", "scalar/generate", `{"INPUT0":7}`, 200, `{"OUTPUT0":7,"model_name":"scalar","model_version":"1",` + params + `}`},
		{"no elements", "scalar/generate", `{"INPUT0":[]}`, 200, `{"OUTPUT0":[],"model_name":"scalar","model_version":"1",` + params + `}`},
		{"an input among the parameters", "scalar/generate", `{"parameters":{"INPUT0":[7,8],"p":1}}`, 200, `{"OUTPUT0":[7,8],"model_name":"scalar","model_version":"1",` + params + `}`},
		{"rows take what the other dimensions leave", "truth/generate", `{"INPUT0":[true,false]}`, 200, `{"OUTPUT0":[true,false],"model_name":"truth","model_version":"1",` + params + `}`},
		{"too much for a fixed shape", "fixed/generate", `{"INPUT0":[1,2,3,4]}`, 400, `{"error":"The schema can not convert input 'INPUT0' to tensor with proper shape"}`},
		{"strings", "text/generate", `{"INPUT0":["a\n","\u00e9"]}`, 200, `{"OUTPUT0":["a\n","é"],"model_name":"text","model_version":"1",` + params + `}`},
		{"an ordinary model as a stream", "scalar/generate_stream", `{"INPUT0":7}`, 200, `data: {"OUTPUT0":7,"model_name":"scalar","model_version":"1",` + params + "}\n\n"},

		{"one response", "dec/generate", `{"IN":5}`, 200, `{"OUT":5,"model_name":"dec","model_version":"1"}`},
		{"two responses", "dec/generate", `{"IN":[5,6]}`, 500, notOne},
		{"none", "dec/generate", `{"IN":[]}`, 500, notOne},
		{"an error", "dec/generate", `{"IN":-1}`, 400, `{"error":"bad thing"}`},
		{"a response and an error", "dec/generate", `{"IN":[5,-1]}`, 500, notOne},
		{"a failed execution", "dec/generate", `{"IN":-2}`, 400, `{"error":"boom"}`},
		{"a stream of two", "dec/generate_stream", `{"IN":[5,6],"id":"i"}`, 200, `data: {"OUT":5,"id":"i","model_name":"dec","model_version":"1"}` + "\n\n" + `data: {"OUT":6,"id":"i","model_name":"dec","model_version":"1"}` + "\n\n"},
		{"a stream of none", "dec/generate_stream", `{"IN":[]}`, 200, ``},
		{"a stream that begins with an error", "dec/generate_stream", `{"IN":[-1,5]}`, 400, `data: {"error":"bad thing"}` + "\n\n" + `data: {"OUT":5,"model_name":"dec","model_version":"1"}` + "\n\n"},
		{"a stream with an error in it", "dec/generate_stream", `{"IN":[5,-1,6]}`, 200, `data: {"OUT":5,"model_name":"dec","model_version":"1"}` + "\n\n" + `data: {"error":"bad thing"}` + "\n\n" + `data: {"OUT":6,"model_name":"dec","model_version":"1"}` + "\n\n"},
		{"a stream whose execution fails", "dec/generate_stream", `{"IN":[5,-2]}`, 200, `data: {"OUT":5,"model_name":"dec","model_version":"1"}` + "\n\n" + `data: {"error":"boom"}` + "\n\n"},
		{"infer is refused", "dec/infer", `{"inputs":[]}`, 501, `{"error":"HTTP end point doesn't support models with decoupled transaction policy"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, body := exchange(t, addr, post("/v2/models/"+c.path, []byte(c.body)))
			if resp == nil || resp.StatusCode != c.status || string(body) != c.want {
				t.Fatalf("got %v %s, want %d %s", resp, body, c.status, c.want)
			}
			want := jsonType
			if strings.HasSuffix(c.path, "_stream") {
				want = eventsType
			}
			if got := resp.Header.Get("Content-Type"); got != want {
				t.Errorf("got Content-Type %q, want %q", got, want)
			}
		})
	}
}

func TestGenerateStreamSendsEachEventAtOnce(t *testing.T) {
	step, stopped := make(chan struct{}), make(chan struct{})
	fake := &backendtest.Fake{OnRun: func(b *infer.Batch) error {
		s := b.Requests[0].Stream
		go func() {
			defer close(stopped)
			for i := int32(0); ; i++ {
				select {
				case <-step:
					_ = play(s, i)
				case <-s.Done():
					s.Finish(status.Errorf(status.Cancelled, "stopped"))
					return
				}
			}
		}()
		return nil
	}}
	e := startEngine(t, map[string]string{"dec": scriptedModel}, fake)
	c := dial(t, "tcp", start(t, e, Options{}))
	send(t, c, post("/v2/models/dec/generate_stream", []byte(`{"IN":1}`)))
	step <- struct{}{}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		if i > 0 {
			step <- struct{}{}
		}
		line, err := lines.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "data: {\"OUT\":"+itoa(i)) {
			t.Fatalf("event %d: got %q, %v", i, line, err)
		}
		if blank, err := lines.ReadString('\n'); err != nil || blank != "\n" {
			t.Fatalf("after event %d: got %q, %v", i, blank, err)
		}
	}
	c.Close()
	select {
	case <-stopped:
	case <-time.After(10 * time.Second):
		t.Fatal("the model was not told that the client hung up")
	}
	eventually(t, "the request is counted as cancelled", func() bool {
		s, err := e.Statistics("dec", infer.LatestVersion)
		return err == nil && s[0].Failures["CANCELED"] == 1
	})
}

func TestAConnectionIsUsedAgainAfterAStream(t *testing.T) {
	addr := start(t, startEngine(t, map[string]string{"dec": scriptedModel}, scripted()), Options{})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	for range 3 {
		send(t, c, post("/v2/models/dec/generate_stream", []byte(`{"IN":[1,2]}`)))
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || strings.Count(string(body), "data: ") != 2 {
			t.Errorf("got %q, %v, want two events", body, err)
		}
	}
}
