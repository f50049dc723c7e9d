package python

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// startCounting starts an instance of the decoupled handler count.
func startCounting(t *testing.T) backend.Instance {
	t.Helper()
	cfg := &modelpb.ModelConfig{
		Name: "count", MaxBatchSize: 4,
		Input:                  []*modelpb.ModelInput{{Name: "INPUT0", DataType: modelpb.DataType_TYPE_INT32, Dims: []int64{1}}},
		Output:                 []*modelpb.ModelOutput{{Name: "OUTPUT0", DataType: modelpb.DataType_TYPE_INT32, Dims: []int64{1}}},
		ModelTransactionPolicy: &modelpb.ModelTransactionPolicy{Decoupled: true},
	}
	return startInstance(t, newBackend(t, Options{ResponseQueueSize: queueSize}), "count", cfg)
}

// queueSize is how many bytes of responses wait for a client.
const queueSize = 1 << 20

// count returns a request for so many responses.
func count(n int32) *infer.Request {
	r := infer.NewRequest()
	r.Rows = 1
	input := r.AddInput()
	input.Name, input.Type, input.Shape = "INPUT0", tensor.Int32, tensor.Shape{1, 1}
	input.Data.First = binary.LittleEndian.AppendUint32(nil, uint32(n))
	r.Stream = infer.NewStream(queueSize, func(infer.Delivery) {})
	return r
}

func runAll(t *testing.T, in backend.Instance, requests ...*infer.Request) {
	t.Helper()
	b := &infer.Batch{Requests: requests}
	for _, r := range requests {
		b.Rows += r.Rows
	}
	if err := in.Run(b); err != nil {
		t.Fatalf("run: %v", err)
	}
}

// responses collects what a stream gives.
func responses(t *testing.T, s *infer.Stream) (values []int32, err error) {
	t.Helper()
	for {
		resp, final, nextErr := s.Next(t.Context())
		if nextErr != nil {
			return values, nextErr
		}
		if resp != nil && resp.Err != nil {
			err = resp.Err
		} else if resp != nil {
			values = append(values, int32(binary.LittleEndian.Uint32(resp.Outputs[0].Data)))
			if got := resp.Params[0].Int; got != int64(values[len(values)-1]) {
				t.Errorf("parameter: got %d, want %d", got, values[len(values)-1])
			}
			resp.Release()
		}
		if final {
			return values, err
		}
	}
}

func TestDecoupledRequestsGetAnyNumberOfResponses(t *testing.T) {
	in := startCounting(t)
	var batch []*infer.Request
	for _, n := range []int32{3, 0, 50} {
		batch = append(batch, count(n))
	}
	runAll(t, in, batch...)
	for i, want := range []int{3, 0, 50} {
		got, err := responses(t, batch[i].Stream)
		if err != nil || len(got) != want {
			t.Errorf("request %d: got %d responses and error %v, want %d", i, len(got), err, want)
		}
		for j, v := range got {
			if int(v) != j {
				t.Errorf("request %d: response %d is %d", i, j, v)
			}
		}
		batch[i].Release()
	}
}

func TestDecoupledExceptionFailsAndFinishesTheStream(t *testing.T) {
	in := startCounting(t)
	r := count(-1)
	defer r.Release()
	runAll(t, in, r)
	if _, err := responses(t, r.Stream); err == nil || status.Public(err) != "ValueError: no such number" {
		t.Errorf("got %v, want the exception's last line", err)
	}
}

func TestDecoupledStreamsEndWithTheirWorker(t *testing.T) {
	in := startCounting(t)
	r := count(-2)
	runAll(t, in, r)
	if _, err := responses(t, r.Stream); err == nil || !strings.Contains(status.Public(err), "exit code 7") {
		t.Errorf("got %v, want what became of the worker", err)
	}
	r.Release()
	next := count(2)
	defer next.Release()
	runAll(t, in, next)
	if got, err := responses(t, next.Stream); err != nil || len(got) != 2 {
		t.Errorf("after the restart: got %d responses and error %v, want 2", len(got), err)
	}
}

func TestDecoupledHandlerSeesThatItsClientIsGone(t *testing.T) {
	in := startCounting(t)
	r := count(-3)
	r.Stream.Cancel(status.Errorf(status.Cancelled, "gone"))
	runAll(t, in, r) // it returns only because the handler sees the flag
	r.Release()
}

func TestAModelIsHeldUpWhileItsClientHasMuchToRead(t *testing.T) {
	in := startCounting(t)
	const many = 3 * queueSize / 512 // each response counts for 512 bytes and more
	var sent atomic.Int64
	slow, fast := count(many), count(5)
	slow.Stream = infer.NewStream(queueSize, func(infer.Delivery) { sent.Add(1) })
	runAll(t, in, slow)
	last, since := int64(-1), time.Now()
	eventually(t, 30*time.Second, func() error { // nothing more comes, because of the client or because the stream is ended
		if n := sent.Load(); n != last {
			last, since = n, time.Now()
		}
		if last == 0 || time.Since(since) < 300*time.Millisecond {
			return fmt.Errorf("%d responses and more to come", last)
		}
		return nil
	})
	runAll(t, in, fast) // the model sends from threads of its own, so others are served
	if got, err := responses(t, fast.Stream); err != nil || len(got) != 5 {
		t.Errorf("another client: got %d responses and %v, want 5", len(got), err)
	}
	got, err := responses(t, slow.Stream)
	if err != nil || len(got) != many {
		t.Fatalf("got %d responses and %v, want %d", len(got), err, many)
	}
	for i, v := range got {
		if int(v) != i {
			t.Fatalf("response %d: got %d, want them in order", i, v)
		}
	}
}
