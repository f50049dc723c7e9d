package perf

import (
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/net/http2/hpack"

	"shoal/internal/client"
	"shoal/internal/load"
	"shoal/internal/perf/input"
	"shoal/internal/perf/result"
)

// encode makes the link and the messages that are sent over it.
func (s *Session) encode(ctx context.Context, outputs []input.Port) error {
	if err := s.prepareSequences(); err != nil {
		return err
	}
	s.expected = s.data.Answers(s.settings.Plan.BatchSize)
	return s.encodeWith(s.encoder(), func(rows [][]client.Tensor) ([]client.Output, error) {
		if !s.settings.SharedMemory {
			return nil, nil
		}
		if s.expected != nil {
			return nil, errors.New("--shared-memory lets all requests share the memory of the outputs: they cannot be compared with expected ones")
		}
		return s.shareMemory(ctx, rows, outputs)
	})
}

// parameters returns the parameters of each request.
func (s *Session) parameters() []client.Parameter {
	if !s.decoupled {
		return s.settings.Parameters
	}
	return append(slices.Clone(s.settings.Parameters), client.Parameter{Name: "triton_enable_empty_final_response", Value: true})
}

// encoder makes the link and returns a function that makes messages for it.
func (s *Session) encoder() func(r *client.Request) error {
	if s.settings.Protocol == result.GRPC {
		return s.encodeGRPC()
	}
	return s.encodeHTTP()
}

// encodeWith makes the messages of the data. Place, unless nil, may move the
// inputs elsewhere and returns the wanted outputs.
func (s *Session) encodeWith(add func(r *client.Request) error, place func(rows [][]client.Tensor) ([]client.Output, error)) error {
	set := &s.settings
	rows, err := s.data.Requests(set.Plan.BatchSize, s.target.MaxBatch > 0)
	if err != nil {
		return err
	}
	var wanted []client.Output
	if place != nil {
		if wanted, err = place(rows); err != nil {
			return err
		}
	}
	for _, inputs := range rows {
		r := client.Request{Model: set.Model, Version: set.Version, Inputs: inputs, Outputs: wanted, Parameters: s.parameters(), Sequenced: s.sequences != nil}
		if err := add(&r); err != nil {
			return err
		}
		s.requests = append(s.requests, r)
	}
	return nil
}

func (s *Session) encodeHTTP() func(r *client.Request) error {
	l := load.NewHTTPLink(s.settings.Address.Host, s.settings.TLS)
	s.link = l
	return func(r *client.Request) error {
		path, header, body, err := client.EncodeHTTP(r, s.settings.InFormat, s.settings.OutFormat)
		s.messages = append(s.messages, l.Message(s.settings.Address.Prefix+path, append(header, s.settings.Header...), body))
		return err
	}
}

func (s *Session) encodeGRPC() func(r *client.Request) error {
	o := load.H2Options{TLS: s.settings.TLS, Compression: s.settings.Compression, Stream: s.settings.Streaming, Decoupled: s.decoupled}
	for _, h := range s.settings.Header {
		o.Header = append(o.Header, hpack.HeaderField{Name: strings.ToLower(h.Name), Value: h.Value})
	}
	l := load.NewH2Link(s.settings.Address.Host, o)
	s.link = l
	return func(r *client.Request) error {
		data, err := client.EncodeGRPC(r)
		if err != nil {
			return err
		}
		m, err := l.Message(data)
		s.messages = append(s.messages, m)
		return err
	}
}
