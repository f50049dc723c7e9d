package engine

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"shoal/internal/backend"
	"shoal/internal/backend/example/identity"
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
)

// ailing is the identity backend whose models are in trouble when the test says so.
type ailing struct {
	identity.Backend
	trouble atomic.Pointer[error]
}

type ailingModel struct {
	backend.Model
	of *ailing
}

func (a *ailing) Probe(src backend.Source) backend.Probed {
	return backend.Opener(func(ctx context.Context, cfg *modelpb.ModelConfig, sig *model.Signature, host backend.Host) (backend.Model, error) {
		m, err := a.Backend.Probe(src).Open(ctx, cfg, sig, host)
		return ailingModel{m, a}, err
	})
}

func (m ailingModel) Trouble() error {
	if err := m.of.trouble.Load(); err != nil {
		return *err
	}
	return nil
}

func TestAModelInTroubleIsNotReadyUntilItIsOver(t *testing.T) {
	a := new(ailing)
	dir := repo(t, map[string]string{"one/config.pbtxt": oneInput, "one/1/": ""})
	e, err := Start(t.Context(), Options{
		Name: "test", Version: "1", Repositories: []string{dir}, LoadThreads: 1,
		Backends: []backend.Backend{a}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	check := func(ready bool, state State, reason string) {
		t.Helper()
		if e.Ready() != ready || e.ModelReady("one", infer.LatestVersion) != ready {
			t.Errorf("got server %v and model %v, want both ready %v", e.Ready(), e.ModelReady("one", infer.LatestVersion), ready)
		}
		if got := e.Index(false); len(got) != 1 || got[0].State != state || !strings.Contains(got[0].Reason, reason) {
			t.Errorf("got index %+v, want %s with reason %q", got, state, reason)
		}
		if e.Failed() != nil {
			t.Errorf("got %v, want no failure: it was loaded", e.Failed())
		}
	}
	check(true, StateReady, "")
	trouble := errors.New("its workers are gone")
	a.trouble.Store(&trouble)
	check(false, StateUnavailable, "Internal: ")
	a.trouble.Store(nil)
	check(true, StateReady, "")
}
