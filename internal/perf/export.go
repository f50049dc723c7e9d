package perf

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/proto"

	"shoal/internal/client"
	"shoal/internal/load"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/tensor"
)

// An exported request is kept with its answer for the profile export.
type exported struct {
	message  int // which of the messages
	sequence uint64
	at       time.Duration
	arrivals []time.Duration
	answer   []byte
}

// An experiment is a level of the profile export.
type experiment struct {
	load       Load
	requests   []exported
	boundaries []time.Time
}

// keep remembers a level's requests for the export.
func (s *Session) keep(l *Level, requests []exported) {
	e := experiment{load: l.Load, requests: requests}
	for i := range l.Windows {
		w := &l.Windows[i]
		if i == 0 {
			e.boundaries = append(e.boundaries, w.Start)
		}
		e.boundaries = append(e.boundaries, w.Start.Add(w.Duration))
	}
	s.exported = append(s.exported, e)
}

// The layout of perf_analyzer's profile export.
type (
	exportFile struct {
		Experiments []exportExperiment `json:"experiments"`
		Version     string             `json:"version"`
		ServiceKind string             `json:"service_kind"`
		Endpoint    string             `json:"endpoint"`
	}
	exportExperiment struct {
		Experiment exportLoad      `json:"experiment"`
		Requests   []exportRequest `json:"requests"`
		Boundaries []int64         `json:"window_boundaries"`
	}
	exportLoad struct {
		Mode  string  `json:"mode"`
		Value float64 `json:"value"`
	}
	exportRequest struct {
		Timestamp int64                        `json:"timestamp"`
		Sequence  uint64                       `json:"sequence_id,omitempty"`
		Inputs    map[string]json.RawMessage   `json:"request_inputs"`
		Arrivals  []int64                      `json:"response_timestamps"`
		Outputs   []map[string]json.RawMessage `json:"response_outputs"`
	}
)

// WriteExport writes all requests of a run that asked for it, in the layout of
// perf_analyzer's profile export. Of several answers to one request it has the
// times of all and the outputs of the last.
func (s *Session) WriteExport(w io.Writer, version string) error {
	file := exportFile{Experiments: []exportExperiment{}, Version: version, ServiceKind: "triton"}
	inputs := make([]map[string]json.RawMessage, len(s.requests))
	for i := range s.requests {
		inputs[i] = make(map[string]json.RawMessage)
		for _, t := range s.requests[i].Inputs {
			inputs[i][t.Name] = exportValue(t.Type, t.Data)
		}
	}
	for _, e := range s.exported {
		out := exportExperiment{Experiment: exportLoad{e.load.Mode, e.load.Value}, Requests: []exportRequest{}}
		switch e.load.Mode {
		case Intervals:
			out.Experiment.Mode = RequestRate
		case Periodic:
			out.Experiment.Mode = Concurrency
		}
		for _, b := range e.boundaries {
			out.Boundaries = append(out.Boundaries, b.UnixNano())
		}
		for _, r := range e.requests {
			outputs, err := s.outputs(r.answer)
			if err != nil {
				return fmt.Errorf("an answer cannot be written down: %w", err)
			}
			request := exportRequest{Timestamp: load.At(r.at).UnixNano(), Sequence: r.sequence, Inputs: inputs[r.message], Outputs: []map[string]json.RawMessage{outputs}}
			for _, a := range r.arrivals {
				request.Arrivals = append(request.Arrivals, load.At(a).UnixNano())
			}
			out.Requests = append(out.Requests, request)
		}
		file.Experiments = append(file.Experiments, out)
	}
	b := bufio.NewWriter(w)
	if err := json.NewEncoder(b).Encode(file); err != nil {
		return err
	}
	return b.Flush()
}

func (s *Session) outputs(answer []byte) (map[string]json.RawMessage, error) {
	if s.settings.Protocol == GRPC {
		return grpcOutputs(answer)
	}
	return httpOutputs(answer)
}

func grpcOutputs(answer []byte) (map[string]json.RawMessage, error) {
	var m pb.ModelInferResponse
	if err := proto.Unmarshal(answer, &m); err != nil {
		return nil, err
	}
	list := make(map[string]json.RawMessage)
	for i, o := range m.GetOutputs() {
		t, ok := tensor.ParseType(o.GetDatatype())
		if ok && i < len(m.GetRawOutputContents()) {
			list[o.GetName()] = exportValue(t, m.GetRawOutputContents()[i])
		}
	}
	return list, nil
}

// httpOutputs reads the outputs of an HTTP answer: JSON, and behind it the bytes
// of those outputs that say how many they have.
func httpOutputs(answer []byte) (map[string]json.RawMessage, error) {
	var head struct {
		Outputs []struct {
			Name, Datatype string
			Parameters     struct {
				Size *int `json:"binary_data_size"`
			}
			Data json.RawMessage
		}
	}
	d := json.NewDecoder(bytes.NewReader(answer))
	if err := d.Decode(&head); err != nil {
		return nil, err
	}
	tail := answer[d.InputOffset():]
	list := make(map[string]json.RawMessage)
	for _, o := range head.Outputs {
		if o.Parameters.Size == nil {
			list[o.Name] = o.Data
			continue
		}
		n := *o.Parameters.Size
		if n < 0 || n > len(tail) {
			return nil, fmt.Errorf("output %q has %d bytes of %d that are left", o.Name, n, len(tail))
		}
		if t, ok := tensor.ParseType(o.Datatype); ok {
			list[o.Name] = exportValue(t, tail[:n])
		}
		tail = tail[n:]
	}
	return list, nil
}

// exportValue writes a tensor: its elements as a list, or the one that it has.
func exportValue(t tensor.Type, data []byte) json.RawMessage {
	text, err := client.AppendJSON(nil, t, data)
	if err != nil || !json.Valid(text) { // not whole, or numbers that JSON does not have
		text, _ = json.Marshal(map[string]any{"b64": data})
		return text
	}
	if one := bytes.Trim(text, "[]"); t != tensor.Bytes && !bytes.ContainsRune(one, ',') && len(one) > 0 {
		return one
	}
	if list, err := client.Strings(data); t == tensor.Bytes && err == nil && len(list) == 1 {
		text, _ = json.Marshal(list[0])
	}
	return text
}
