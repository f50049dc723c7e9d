package python

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/infer"
)

func TestAModelIsToldWhichClientsHaveGoneWhileItRuns(t *testing.T) {
	in := startPlay(t, Options{})
	for range 3 { // what was asked of one batch says nothing of the next
		leaving, leave := context.WithCancel(t.Context())
		stays, goes := play("until_cancelled", 1, 1), play("", 1, 2)
		stays.Context, goes.Context = t.Context(), leaving
		ran := make(chan error, 1)
		go func() { ran <- in.Run(batchOf(stays, goes)) }()
		eventually(t, 10*time.Second, func() error { return watched(in) })
		leave()
		if err := <-ran; err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			request *infer.Request
			want    bool
		}{{stays, false}, {goes, true}} {
			sameAsInput(t, c.request)
			want := []infer.Param{{Name: "cancelled", Kind: infer.ParamBool, Bool: c.want}}
			if diff := cmp.Diff(want, c.request.Response.Params); diff != "" {
				t.Errorf("parameters (-want +got):\n%s", diff)
			}
			c.request.Release()
		}
	}
}

// watched fails while the worker has not asked for a client of its batch.
func watched(in *instance) error {
	c := &in.current.Load().clients
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.batches[0].ended == nil {
		return errors.New("the model has not asked")
	}
	return nil
}

func TestAClientThatLeftBeforeTheModelAsksIsGone(t *testing.T) {
	in := startPlay(t, Options{})
	left, leave := context.WithCancel(t.Context())
	leave()
	r := play("until_cancelled", 1, 1)
	r.Context = left
	if err := in.Run(batchOf(r)); err != nil {
		t.Fatal(err)
	}
	sameAsInput(t, r)
	r.Release()
}

func TestAQuestionAboutABatchThatHasEndedIsAnsweredNo(t *testing.T) {
	var c clients
	r := &infer.Request{Context: t.Context()}
	c.begin(7, []*infer.Request{r})
	for _, key := range []requestKey{{6, 0}, {7, 1}, {8, 0}} {
		if c.watch(key) {
			t.Errorf("%v: got gone, want not", key)
		}
	}
	if c.batches[0].ended != nil {
		t.Error("a client is watched that nobody asked for")
	}
	c.end(7)
	if c.watch(requestKey{7, 0}) || c.watch(requestKey{0, 0}) {
		t.Error("got gone after the end, want not")
	}
}
