package perftest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"shoal/internal/backend"
	"shoal/internal/backend/example/identity"
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

// A sleeping backend returns its inputs after a known time: parameters fixed_us
// and row_us of the model. With the parameter fail_every one request in that
// many fails, at random.
type sleeping struct {
	identity.Backend
	stalls *stalls
}

func (b sleeping) Name() string { return "sleeping" }

func (b sleeping) Probe(src backend.Source) backend.Probed {
	return sleepingProbed{b.Backend.Probe(src), b.stalls}
}

type sleepingProbed struct {
	backend.Probed
	stalls *stalls
}

func (p sleepingProbed) Open(ctx context.Context, cfg *modelpb.ModelConfig, sig *model.Signature, host backend.Host) (backend.Model, error) {
	inner, err := p.Probed.Open(ctx, cfg, sig, host)
	if err != nil {
		return nil, err
	}
	m := &sleeper{Model: inner, stalls: p.stalls, rng: rand.New(rand.NewPCG(1, 1))}
	for name, to := range map[string]*int64{"fixed_us": &m.fixed, "row_us": &m.row, "fail_every": &m.failEvery} {
		if text := cfg.GetParameters()[name].GetStringValue(); text != "" {
			if *to, err = strconv.ParseInt(text, 10, 64); err != nil {
				return nil, fmt.Errorf("parameter %s: %w", name, err)
			}
		}
	}
	return m, nil
}

type sleeper struct {
	backend.Model
	stalls                *stalls
	fixed, row, failEvery int64

	mu  sync.Mutex // protects the field below
	rng *rand.Rand
}

func (m *sleeper) Start(ctx context.Context, p backend.Placement) (backend.Instance, error) {
	inner, err := m.Model.Start(ctx, p)
	return &instance{inner, m}, err
}

type instance struct {
	backend.Instance
	model *sleeper
}

// Run implements backend.Instance.
func (in *instance) Run(b *infer.Batch) error {
	begin := time.Now()
	m := in.model
	m.stalls.wait()
	if cost := time.Duration(m.fixed+m.row*int64(b.Rows)) * time.Microsecond; cost > 0 {
		sleepUntil(begin.Add(cost))
	}
	if err := in.Instance.Run(b); err != nil {
		return err
	}
	b.Times.InputsReady = begin // the sleep counts as the model's computation
	if m.failEvery > 0 {
		for _, r := range b.Requests {
			r.Err = m.failure()
		}
	}
	return nil
}

// failure fails one request in m.failEvery, for one of two reasons.
func (m *sleeper) failure() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch m.rng.Int64N(2 * m.failEvery) {
	case 0:
		return status.Errorf(status.Internal, "the flaky model dropped a row")
	case 1:
		return status.Errorf(status.Unavailable, "the flaky model is busy")
	}
	return nil
}

// stalls stops every model for a while.
type stalls struct {
	mu    sync.Mutex // protects the field below
	until time.Time
}

func (s *stalls) begin(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Now().Add(d)
}

func (s *stalls) wait() {
	s.mu.Lock()
	until := s.until
	s.mu.Unlock()
	if time.Now().Before(until) {
		sleepUntil(until)
	}
}
