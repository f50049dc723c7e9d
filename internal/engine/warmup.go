package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/model/modelpb"
	"shoal/internal/repository"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// A sample is a batch that each instance runs before it is given work.
type sample struct {
	name     string
	requests int // of one row each
	count    int // how often the batch is run
	inputs   []infer.Input
}

// warmups returns the samples of a normalised configuration, with their data.
func warmups(src repository.Entry, cfg *modelpb.ModelConfig, sig *model.Signature) ([]sample, error) {
	var list []sample
	for _, w := range cfg.GetModelWarmup() {
		if w.GetBatchSize() == 0 { // as in Triton, nothing is to be run
			continue
		}
		s := sample{name: w.GetName(), requests: int(w.GetBatchSize()), count: max(1, int(w.GetCount()))}
		for _, name := range slices.Sorted(maps.Keys(w.GetInputs())) {
			in, err := warmupInput(src, name, w.GetInputs()[name], sig)
			if err != nil {
				return nil, s.fault(err)
			}
			s.inputs = append(s.inputs, in)
		}
		if most := max(1, sig.MaxBatch); s.requests > most {
			return nil, s.fault(status.Errorf(status.InvalidArgument, "batch_size is %d, want at most %d, the model's max_batch_size", s.requests, most))
		}
		list = append(list, s)
	}
	return list, nil
}

// fault says which sample failed, in the words that Triton has for it.
func (s *sample) fault(err error) error {
	cause := err
	if e, ok := errors.AsType[*status.Error](err); ok {
		cause = e.Cause // its public text is in ours
	}
	return status.Wrap(status.CodeOf(err), cause, fmt.Sprintf("failed to run warmup sample '%s': %s; ", s.name, status.Public(err)))
}

// warmupInput returns one row of an input.
func warmupInput(src repository.Entry, name string, w *modelpb.ModelWarmup_Input, sig *model.Signature) (infer.Input, error) {
	in := infer.Input{Name: name, Type: tensor.Type(w.GetDataType()), Shape: w.GetDims()}
	if in.Type == tensor.Invalid {
		return in, status.Errorf(status.InvalidArgument, "input '%s' has no data_type", name)
	}
	elements, ok := in.Shape.Elements()
	if !in.Shape.Fixed() || !ok {
		return in, status.Errorf(status.InvalidArgument, "input '%s' has dims %s, want every dimension given", name, in.Shape)
	}
	if sig.MaxBatch > 0 {
		in.Shape = append(tensor.Shape{1}, in.Shape...)
	}
	size := int64(4) // the length of an empty string
	if in.Type != tensor.Bytes {
		size = int64(in.Type.Size())
	}
	if elements > maxWarmup/size {
		return in, status.Errorf(status.InvalidArgument, "input '%s' has %d elements, and at most %d bytes are made", name, elements, int64(maxWarmup))
	}
	size *= elements
	switch data := w.GetInputDataType().(type) {
	case *modelpb.ModelWarmup_Input_ZeroData:
		in.Data.First = make([]byte, size)
	case *modelpb.ModelWarmup_Input_RandomData:
		in.Data.First = make([]byte, size)
		randomise(in.Data.First, in.Type)
	case *modelpb.ModelWarmup_Input_InputDataFile:
		content, err := src.WarmupData(data.InputDataFile)
		if err != nil {
			return in, err
		}
		if in.Type != tensor.Bytes {
			if int64(len(content)) < size {
				return in, status.Errorf(status.InvalidArgument, "warmup setting expects %d bytes, but the data provided from %s only has %d bytes", size, data.InputDataFile, len(content))
			}
			content = content[:size]
		}
		in.Data.First = content
	default:
		return in, status.Errorf(status.InvalidArgument, "input '%s' has no data: set zero_data, random_data or input_data_file", name)
	}
	return in, nil
}

// maxWarmup is the most bytes that are made for an input.
const maxWarmup = 1 << 30

// randomise fills numbers with random ones: from 0 up to 1, or any integer. Strings
// stay empty, as in Triton.
func randomise(b []byte, t tensor.Type) {
	switch t {
	case tensor.Bytes:
	case tensor.FP32:
		for ; len(b) > 0; b = b[4:] {
			binary.LittleEndian.PutUint32(b, math.Float32bits(rand.Float32()))
		}
	case tensor.FP64:
		for ; len(b) > 0; b = b[8:] {
			binary.LittleEndian.PutUint64(b, math.Float64bits(rand.Float64()))
		}
	case tensor.FP16, tensor.BF16:
		for ; len(b) > 0; b = b[2:] { // all below the bits of 1 in either type
			binary.LittleEndian.PutUint16(b, uint16(rand.UintN(0x3c00)))
		}
	case tensor.Bool:
		for i := range b {
			b[i] = byte(rand.UintN(2))
		}
	default:
		for i := range b {
			b[i] = byte(rand.Uint32())
		}
	}
}

// warmUp runs the samples on an instance that nobody else uses. They count nowhere.
func (v *Version) warmUp(ctx context.Context, in backend.Instance, samples []sample) error {
	for i := range samples {
		s := &samples[i]
		for range s.count {
			if err := ctx.Err(); err != nil {
				return gone(ctx)
			}
			if err := v.runSample(ctx, in, s); err != nil {
				return s.fault(err)
			}
		}
	}
	return nil
}

// runSample runs a sample once and throws its responses away.
func (v *Version) runSample(ctx context.Context, in backend.Instance, s *sample) (err error) {
	b := &infer.Batch{Times: infer.Times{Start: time.Now()}}
	defer func() {
		for _, r := range b.Requests {
			r.Release()
		}
	}()
	for range s.requests {
		r := infer.NewRequest()
		b.Requests = append(b.Requests, r)
		r.Context, r.Queued = ctx, b.Times.Start
		r.Model, r.Version = v.sig.Name, v.number
		r.Inputs = append(r.Inputs, s.inputs...)
		if err := check(v.sig, r); err != nil {
			if late, ok := err.(lateFault); ok {
				err = late.error
			}
			return err
		}
		if v.decoupled {
			r.Stream = infer.NewStream(v.queueSize, func(infer.Delivery) {})
		}
		b.Rows += r.Rows
	}
	ran := make(chan error, 1)
	go func() {
		err := in.Run(b)
		for _, r := range b.Requests {
			if r.Stream != nil && (err != nil || len(r.Response.Outputs) > 0) {
				r.Stream.Finish(err)
			}
		}
		ran <- err
	}()
	for _, r := range b.Requests {
		if r.Stream != nil {
			err = firstError(err, drain(ctx, r.Stream))
		}
	}
	err = firstError(<-ran, err)
	for _, r := range b.Requests {
		err = firstError(err, r.Err)
	}
	return err
}

// drain takes a stream's responses to its end and returns the first error among
// them.
func drain(ctx context.Context, s *infer.Stream) (first error) {
	for {
		resp, final, err := s.Next(ctx)
		if err != nil {
			s.Cancel(err)
			return firstError(first, err)
		}
		if resp != nil {
			first = firstError(first, resp.Err)
			resp.Release()
		}
		if final {
			return first
		}
	}
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
