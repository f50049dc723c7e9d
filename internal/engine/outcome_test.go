package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shoal/internal/backend/backendtest"
	"shoal/internal/infer"
	"shoal/internal/tensor"
)

// outcomeOf sends a request with that content and returns what became of it.
func outcomeOf(ctx context.Context, v *Version, content string) infer.Outcome {
	r := infer.NewRequest()
	defer r.Release()
	r.Inputs = append(r.Inputs, in("IN", tensor.FP32, tensor.Shape{1, 2}, content))
	_ = v.Infer(ctx, r) // the outcome tells
	return r.Outcome
}

func TestARequestKnowsItsOutcome(t *testing.T) {
	for _, scheduler := range []string{"", "dynamic_batching { default_queue_policy { max_queue_size: 1 } }"} {
		dir := fakeRepo(t, scheduler)
		synctest.Test(t, func(t *testing.T) {
			fault := errors.New("broken")
			v := fakeVersion(t, dir, &backendtest.Fake{OnRun: func(b *infer.Batch) error {
				time.Sleep(time.Second)
				if strings.HasPrefix(string(b.Requests[0].Inputs[0].Data.First), "bad") {
					return fault
				}
				return nil
			}})
			expect := func(what string, got, want infer.Outcome) {
				t.Helper()
				if got != want {
					t.Errorf("%s: got outcome %d, want %d", what, got, want)
				}
			}
			expect("a good request", outcomeOf(t.Context(), v, eightBytes), infer.Answered)
			expect("one that the backend fails", outcomeOf(t.Context(), v, "bad45678"), infer.Failed)
			expect("one that is too short", outcomeOf(t.Context(), v, "short"), infer.Refused)

			running := asks(t.Context(), v, 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			expect("one whose time was up in the queue", outcomeOf(ctx, v, eightBytes), infer.Failed)
			<-running
			if scheduler != "" {
				busy := asks(t.Context(), v, 1, 1)
				expect("one too many for the queue", outcomeOf(t.Context(), v, eightBytes), infer.Refused)
				<-busy
				<-busy
			}
			v.sched.(interface{ Drain() }).Drain()
			expect("one that comes after the end", outcomeOf(t.Context(), v, eightBytes), infer.Refused)
		})
	}
}
