package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"shoal/internal/infer"
	"shoal/internal/model"
	"shoal/internal/repository"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// A Fault is why a version of a model, or with NoVersion the whole model, is not
// ready.
type Fault struct {
	Version int64
	Err     error
}

// Faults returns why a model is not ready; nil when all of it is.
func (e *Engine) Faults(name string) []Fault {
	m := (*e.models.Load())[name]
	if m == nil {
		return nil
	}
	now := m.entry.Load()
	if now.err != nil {
		return []Fault{{NoVersion, now.err}}
	}
	var list []Fault
	for _, n := range now.numbers() {
		s := now.versions[n]
		err := s.err
		if s.state == StateReady && err == nil {
			err = s.v.trouble()
		}
		if err != nil && !errors.Is(err, errUnloaded) {
			list = append(list, Fault{n, err})
		}
	}
	return list
}

// placed returns an error about a model's configuration with its faults one
// below the other, each by file and line, for the log.
func (e *Engine) placed(src repository.Entry, err error) error {
	invalid, ok := errors.AsType[*model.InvalidError](err)
	path, text := src.ConfigFile(e.opt.ConfigName)
	if !ok || path == "" {
		return err
	}
	var list []string
	for _, f := range invalid.Faults {
		if f.Line > 0 {
			return err // the parser has put the places into the text
		}
		at := path
		if line := model.Locate(text, strings.ReplaceAll(f.Text, "'"+src.Name+"'", "")); line > 0 {
			at = fmt.Sprintf("%s:%d", path, line)
		}
		list = append(list, at+": "+strings.TrimSuffix(strings.TrimSpace(f.Text), ";"))
	}
	if len(list) == 0 {
		return err
	}
	return errors.New(strings.Join(list, "\n"))
}

// TryZeros sends the ready versions of a model a request of one row of zeros,
// with 1 for every free dimension, and returns what fails.
func (e *Engine) TryZeros(ctx context.Context, name string) []Fault {
	m := (*e.models.Load())[name]
	if m == nil {
		return nil
	}
	var list []Fault
	for _, v := range m.entry.Load().ready() {
		if !v.leases.begin() {
			continue
		}
		if err := v.tryZeros(ctx); err != nil {
			list = append(list, Fault{v.number, status.Prefix("a request of zeros: ", err)})
		}
		v.leases.end()
	}
	return list
}

func (v *Version) tryZeros(ctx context.Context) error {
	r := infer.NewRequest()
	defer r.Release()
	r.Model, r.Version = v.sig.Name, v.number
	for i := range v.sig.Inputs {
		in := &v.sig.Inputs[i]
		if in.Optional {
			continue
		}
		shape := append(tensor.Shape{}, in.Full...)
		for d := range shape {
			if shape[d] < 0 {
				shape[d] = 1
			}
		}
		elements, ok := shape.Elements()
		size := int64(4) // the length of an empty string
		if in.Type != tensor.Bytes {
			size = int64(in.Type.Size())
		}
		if !ok || elements > maxWarmup/size {
			return status.Errorf(status.InvalidArgument, "input '%s' of shape %s is too large to try", in.Name, shape)
		}
		*r.AddInput() = infer.Input{Name: in.Name, Type: in.Type, Shape: shape, Data: infer.Data{First: make([]byte, elements*size)}}
	}
	return v.InferStream(ctx, r, func(resp *infer.Response, _ bool) error { return resp.Err })
}
