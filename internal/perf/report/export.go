package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"shoal/internal/client"
	"shoal/internal/load"
	"shoal/internal/perf/result"
	"shoal/internal/tensor"
)

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

// WriteExport writes all requests of a run in the format of perf_analyzer's
// profile export. For several answers to one request it has the times of all
// and the outputs of the last.
func WriteExport(w io.Writer, e *result.Export, version string) error {
	decode := client.DecodeHTTP
	if e.Protocol == result.GRPC {
		decode = client.DecodeGRPC
	}
	file := exportFile{Experiments: []exportExperiment{}, Version: version, ServiceKind: "triton"}
	inputs := make([]map[string]json.RawMessage, len(e.Requests))
	for i := range e.Requests {
		inputs[i] = make(map[string]json.RawMessage)
		for _, t := range e.Requests[i].Inputs {
			inputs[i][t.Name] = exportValue(t.Type, t.Data)
		}
	}
	for _, l := range e.Levels {
		out := exportExperiment{Experiment: exportLoad{l.Load.Mode, l.Load.Value}, Requests: []exportRequest{}}
		switch l.Load.Mode {
		case result.Intervals:
			out.Experiment.Mode = result.RequestRate
		case result.Periodic:
			out.Experiment.Mode = result.Concurrency
		}
		for _, b := range l.Boundaries {
			out.Boundaries = append(out.Boundaries, b.UnixNano())
		}
		for _, x := range l.Exchanges {
			answers, err := decode(x.Answer)
			if err != nil {
				return fmt.Errorf("an answer cannot be written down: %w", err)
			}
			request := exportRequest{Timestamp: load.At(x.At).UnixNano(), Sequence: x.Sequence, Inputs: inputs[x.Message], Outputs: []map[string]json.RawMessage{outputValues(answers)}}
			for _, a := range x.Arrivals {
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

// outputValues returns the outputs of an answer by name.
func outputValues(answers []client.Answer) map[string]json.RawMessage {
	list := make(map[string]json.RawMessage)
	for _, a := range answers {
		if t, ok := tensor.ParseType(a.Datatype); a.JSON != nil {
			list[a.Name] = a.JSON
		} else if ok {
			list[a.Name] = exportValue(t, a.Data)
		}
	}
	return list
}

// exportValue writes a tensor: its elements as a list, or the one that it has.
func exportValue(t tensor.Type, data []byte) json.RawMessage {
	text, err := client.AppendJSON(nil, t, data)
	if err != nil || !json.Valid(text) { // incomplete, or numbers that JSON does not have
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
