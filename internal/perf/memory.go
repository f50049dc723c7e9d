package perf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"shoal/internal/client"
	"shoal/internal/perf/input"
	"shoal/internal/shm"
	"shoal/internal/tensor"
)

// alignment puts tensors on separate cache lines of the shared memory.
const alignment = 64

func aligned(n int) int { return (n + alignment - 1) / alignment * alignment }

// shareMemory puts the inputs of all requests into registered shared memory and
// makes room for the outputs, which all requests share. It returns where the
// outputs go.
func (s *Session) shareMemory(ctx context.Context, requests [][]client.Tensor, outputs []input.Port) ([]client.Output, error) {
	size := 0
	for _, inputs := range requests {
		for i := range inputs {
			size += aligned(max(1, len(inputs[i].Data)))
		}
	}
	in := s.regionName("in")
	err := s.share(ctx, in, size, func(memory []byte) {
		at := 0
		for _, inputs := range requests {
			for i := range inputs {
				t := &inputs[i]
				t.Place = &client.Place{Region: in, Offset: at, Size: len(t.Data)}
				at += aligned(copy(memory[at:], t.Data))
			}
		}
	})
	if err != nil {
		return nil, err
	}
	out := s.regionName("out")
	wanted, size := s.placeOutputs(out, outputs)
	return wanted, s.share(ctx, out, size, func([]byte) {})
}

// regionName returns a name that no other run uses on the server.
func (s *Session) regionName(side string) string {
	return fmt.Sprintf("shoal_perf_%d_%d_%s", os.Getpid(), time.Now().UnixNano(), side)
}

// placeOutputs returns where the outputs go and how much room they need.
func (s *Session) placeOutputs(region string, outputs []input.Port) (wanted []client.Output, size int) {
	for _, p := range outputs {
		n := s.settings.OutputSize
		if elements, ok := p.Shape.Elements(); ok && p.Shape.Fixed() && p.Type != tensor.Bytes {
			n = max(1, int(elements)*p.Type.Size()*s.settings.Plan.BatchSize)
		}
		wanted = append(wanted, client.Output{Name: p.Name, Place: &client.Place{Region: region, Offset: size, Size: n}})
		size += aligned(n)
	}
	return wanted, max(size, alignment)
}

// share makes shared memory, fills it and registers it with the server. It then
// removes the name: the server has the memory open, and nothing is left behind
// however this process ends.
func (s *Session) share(ctx context.Context, region string, size int, fill func(memory []byte)) error {
	m, err := shm.Create("/"+region, size)
	if err != nil {
		return fmt.Errorf("--shared-memory=system: %w", err)
	}
	fill(m.Bytes())
	if err := s.api.Register(ctx, region, m.Key, size); err != nil {
		return errors.Join(fmt.Errorf("failed to register shared memory: %w", err), m.Remove())
	}
	s.regions = append(s.regions, region)
	return m.Remove()
}

// releaseMemory unregisters the shared memory. It is called when the run is
// over, or being ended.
func (s *Session) releaseMemory() error {
	ctx, cancel := context.WithTimeout(context.Background(), cutPatience)
	defer cancel()
	var errs []error
	for _, region := range s.regions {
		if err := s.api.Unregister(ctx, region); err != nil && !errors.Is(err, client.ErrUnreachable) {
			errs = append(errs, fmt.Errorf("unregister shared memory %s: %w", region, err))
		}
	}
	s.regions = nil
	return errors.Join(errs...)
}
