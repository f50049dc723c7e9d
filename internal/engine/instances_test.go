package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"shoal/internal/backend"
	"shoal/internal/infer"
)

// starting is a model whose starts wait until they are let on.
type starting struct {
	backend.Model
	begun chan string
	on    chan error
}

func (m *starting) Start(ctx context.Context, p backend.Placement) (backend.Instance, error) {
	m.begun <- p.Name
	select {
	case err := <-m.on:
		if err != nil {
			return nil, err
		}
		return &started{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type inParallel struct{ *starting }

func (inParallel) StartsInParallel() {}

type started struct{ closed bool }

func (*started) Run(*infer.Batch) error { return nil }
func (s *started) Close() error         { s.closed = true; return nil }

func TestInstancesStartTogetherWhereTheyMay(t *testing.T) {
	places := []backend.Placement{{Name: "a"}, {Name: "b"}}
	for _, c := range []struct {
		name     string
		parallel bool
		begun    int // before any start has ended
	}{{"one after the other", false, 1}, {"together", true, 2}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &starting{begun: make(chan string, 2), on: make(chan error, 2)}
				v := &Version{model: m}
				if c.parallel {
					v.model = inParallel{m}
				}
				done := make(chan int)
				go func() {
					list, err := v.startInstances(t.Context(), places)
					if err != nil {
						t.Error(err)
					}
					done <- len(list)
				}()
				synctest.Wait()
				if len(m.begun) != c.begun {
					t.Errorf("%d starts before the first ended, want %d", len(m.begun), c.begun)
				}
				m.on <- nil
				m.on <- nil
				if n := <-done; n != 2 {
					t.Errorf("got %d instances, want 2", n)
				}
			})
		})
	}
}

func TestAStartThatFailsEndsTheOthers(t *testing.T) {
	m := &starting{begun: make(chan string, 3), on: make(chan error, 1)}
	v := &Version{model: inParallel{m}}
	broken := errors.New("no memory")
	m.on <- broken
	if _, err := v.startInstances(t.Context(), []backend.Placement{{Name: "a"}, {Name: "b"}, {Name: "c"}}); !errors.Is(err, broken) {
		t.Errorf("got %v, want the error of the one that failed", err)
	}
}
