package perf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"shoal/internal/client"
	"shoal/internal/load"
	"shoal/internal/model/modelpb"
	"shoal/internal/perf/drive"
	"shoal/internal/perf/input"
	"shoal/internal/perf/result"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/spelling"
	"shoal/internal/tensor"
)

// A Session has everything that a run needs: the model is known, the requests
// are encoded. Open, then Run once, then Close.
type Session struct {
	settings   Settings
	api        client.API
	target     result.Target
	statistics bool // the server has them
	parts      []Part
	link       load.Link
	messages   []*load.Message
	requests   []client.Request // what the messages are, for the export
	rows       []int64          // of each message; nil: all have the batch size
	order      []int32          // which message is sent when; nil: in turn
	data       *input.Set
	decoupled  bool
	sequenced  bool                // the model wants sequences
	sequences  *drive.Sequencer    // nil: the model wants none
	expected   []map[string][]byte // by message: the outputs that it must get; nil: any
	regions    []string            // shared memory that the server knows
	server     *load.Process
	gpu        *gpuPoller
	exported   []result.ExportedLevel
	newAlarm   func() (drive.Alarm, error) // what an open loop sleeps by
}

// Open asks the server about the model and prepares the requests. If the server
// does not know the model, the error has the server's text.
func Open(ctx context.Context, settings Settings) (*Session, error) {
	s := &Session{settings: settings, newAlarm: drive.NewAlarm, target: result.Target{
		URL: settings.Address.Host + settings.Address.Prefix, Protocol: settings.Protocol, Streaming: settings.Streaming,
		Model: settings.Model, Version: settings.Version,
	}}
	if settings.Service == TorchServe {
		if err := s.prepareTorchServe(); err != nil {
			return nil, err
		}
		return s, nil
	}
	var err error
	if s.api, err = openAPI(settings); err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func openAPI(s Settings) (client.API, error) {
	o := client.Options{Address: s.Address.Host, TLS: s.TLS, Header: s.Header}
	if s.Protocol == result.GRPC {
		return client.OpenGRPC(o)
	}
	return client.OpenHTTP(o, s.Address.Prefix), nil
}

// Close closes the connections of the API.
func (s *Session) Close() error {
	if s.api == nil {
		return nil
	}
	return errors.Join(s.releaseMemory(), s.api.Close())
}

// Data returns the input data, for the report.
func (s *Session) Data() *input.Set { return s.data }

// Decoupled reports whether the model may answer a request any number of times.
func (s *Session) Decoupled() bool { return s.decoupled }

func (s *Session) prepare(ctx context.Context) error {
	meta, err := s.api.Model(ctx, s.settings.Model, s.settings.Version)
	if err != nil {
		return fmt.Errorf("failed to get model metadata: %w", s.suggest(ctx, s.hint(err)))
	}
	config, err := s.api.Config(ctx, s.settings.Model, s.settings.Version)
	if err != nil {
		return fmt.Errorf("failed to get model config: %w", err)
	}
	server, err := s.api.Server(ctx)
	if err != nil {
		return fmt.Errorf("failed to get server metadata: %w", err)
	}
	s.target.Server = strings.TrimSpace(server.GetName() + " " + server.GetVersion())
	s.statistics = slices.Contains(server.GetExtensions(), "statistics")
	if s.parts, err = s.partsOf(ctx, config, nil); err != nil {
		return err
	}
	for _, p := range s.settings.Composing {
		config, err := s.api.Config(ctx, p.Model, p.Version)
		if err != nil {
			return fmt.Errorf("--bls-composing-models: failed to get model config: %w", err)
		}
		if s.parts, err = s.partsOf(ctx, config, append(s.parts, p)); err != nil {
			return err
		}
	}
	s.target.MaxBatch = int(config.GetMaxBatchSize())
	s.decoupled = config.GetModelTransactionPolicy().GetDecoupled()
	s.sequenced = config.GetSequenceBatching() != nil
	if err := s.checkModel(config); err != nil {
		return err
	}
	if len(s.settings.Trace) > 0 {
		if err := s.api.Trace(ctx, s.settings.Trace); err != nil {
			return fmt.Errorf("failed to change the trace settings: %w", err)
		}
	}
	ports, err := portsOf(meta.GetInputs(), config)
	if err != nil {
		return err
	}
	s.findServer()
	if s.settings.Replay != nil {
		return s.encodeReplay(ports)
	}
	outputs, err := portsOf(meta.GetOutputs(), config)
	if err != nil {
		return err
	}
	s.settings.Input.Outputs = outputs
	if s.data, err = input.Load(ports, s.settings.Input); err != nil {
		return err
	}
	return s.encode(ctx, outputs)
}

// prepareSequences makes the sequences of a model that needs them.
func (s *Session) prepareSequences() error {
	if !s.sequenced {
		return nil
	}
	most := int(s.settings.Range.most())
	if s.settings.Mode != result.Concurrency {
		most = s.settings.Sequences.Count
	}
	if err := s.settings.Sequences.Check(most); err != nil {
		return err
	}
	var streams []drive.Stream
	first := 0
	for _, steps := range s.data.Streams {
		streams = append(streams, drive.Stream{First: first, Steps: len(steps)})
		first += len(steps)
	}
	rules := s.settings.Sequences
	if rules.Length == 0 && !s.data.Read {
		rules.Length = defaultLength
	}
	s.sequences = drive.NewSequencer(rules, streams, s.settings.Seed)
	s.settings.Plan.Async = !s.settings.Sync
	return nil
}

// defaultLength is how long sequences are when nothing says so.
const defaultLength = 20

// hint adds advice to an error about the connection.
func (s *Session) hint(err error) error {
	if errors.Is(err, client.ErrBroken) {
		return fmt.Errorf("%w; does that port speak %s? -i says which protocol, http or grpc, and -u where; https:// in it, or --ssl-grpc-use-ssl, is for TLS", err, s.settings.Protocol)
	}
	if !errors.Is(err, client.ErrUnreachable) {
		return err
	}
	return fmt.Errorf("%w; is a server listening for %s there? -u says where else, -i the protocol", err, s.settings.Protocol)
}

// suggest adds the models that the server has to an error about one that it does not
// have.
func (s *Session) suggest(ctx context.Context, err error) error {
	if errors.Is(err, client.ErrBroken) || errors.Is(err, client.ErrUnreachable) {
		return err
	}
	names, indexErr := s.api.Names(ctx)
	if indexErr != nil || slices.Contains(names, s.settings.Model) {
		return err
	}
	return fmt.Errorf("%w%s", err, spelling.Hint(s.settings.Model, names))
}

// partsOf appends the models of an ensemble and of those in it.
func (s *Session) partsOf(ctx context.Context, config *modelpb.ModelConfig, list []Part) ([]Part, error) {
	for _, step := range config.GetEnsembleScheduling().GetStep() {
		p := Part{Model: step.GetModelName()}
		if step.GetModelVersion() > 0 {
			p.Version = strconv.FormatInt(step.GetModelVersion(), 10)
		}
		if slices.Contains(list, p) {
			continue
		}
		list = append(list, p)
		inner, err := s.api.Config(ctx, p.Model, p.Version)
		if err != nil {
			return nil, fmt.Errorf("failed to get model config: %w", err)
		}
		if list, err = s.partsOf(ctx, inner, list); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (s *Session) checkModel(config *modelpb.ModelConfig) error {
	switch batch := s.settings.Plan.BatchSize; {
	case s.sequenced && s.settings.Replay != nil:
		return fmt.Errorf("model %q wants sequences of requests, which --replay does not make", s.settings.Model)
	case s.sequenced && batch > 1:
		return fmt.Errorf("model %q wants sequences of requests: -b must be 1", s.settings.Model)
	case batch > 1 && s.target.MaxBatch == 0:
		return fmt.Errorf("model %q takes no batches (max_batch_size 0): -b must be 1", s.settings.Model)
	case s.decoupled && !s.settings.Streaming:
		return fmt.Errorf("model %q is decoupled, it may answer a request any number of times: that needs -i grpc --streaming", s.settings.Model)
	}
	return nil
}

// portsOf returns a model's inputs or outputs as one row has them.
func portsOf(list []*pb.ModelMetadataResponse_TensorMetadata, config *modelpb.ModelConfig) ([]input.Port, error) {
	optional := make(map[string]bool)
	for _, in := range config.GetInput() {
		optional[in.GetName()] = in.GetOptional()
	}
	var ports []input.Port
	for _, in := range list {
		t, ok := tensor.ParseType(in.GetDatatype())
		if !ok {
			return nil, fmt.Errorf("tensor %q has the type %q, which is not known", in.GetName(), in.GetDatatype())
		}
		shape := tensor.Shape(in.GetShape())
		if config.GetMaxBatchSize() > 0 && len(shape) > 0 {
			shape = shape[1:] // the batch dimension, which is put back when rows are joined
		}
		ports = append(ports, input.Port{Name: in.GetName(), Type: t, Shape: shape, Optional: optional[in.GetName()]})
	}
	return ports, nil
}

// rowsOf returns the rows of a message.
func (s *Session) rowsOf(message int) int64 {
	if s.rows == nil {
		return int64(s.settings.Plan.BatchSize)
	}
	return s.rows[message]
}

// Plan returns how the run measures. Sequences are measured as perf_analyzer
// measures asynchronous runs, unless that was refused.
func (s *Session) Plan() *result.Plan { return &s.settings.Plan }

// Target returns what is measured.
func (s *Session) Target() *result.Target { return &s.target }

// Sequenced reports whether requests are parts of sequences.
func (s *Session) Sequenced() bool { return s.sequences != nil }
