package perf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"shoal/internal/client"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
	"shoal/internal/tensor"
)

// errUnexpected is wrapped by the error about an answer that is not the expected
// one.
var errUnexpected = errors.New("the answer is not the expected one")

// checkAnswer holds an answer against the outputs that its request must get, byte
// by byte.
func (s *Session) checkAnswer(message int, answer []byte) error {
	read := httpContents
	if s.settings.Protocol == GRPC {
		read = grpcContents
	}
	got, err := read(answer)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnexpected, err)
	}
	for name, want := range s.expected[message] {
		content, ok := got[name]
		switch {
		case !ok:
			return fmt.Errorf("%w: request %d got no output %q", errUnexpected, message+1, name)
		case len(content) != len(want):
			return fmt.Errorf("%w: output %q of request %d has %d bytes, want %d", errUnexpected, name, message+1, len(content), len(want))
		case !bytes.Equal(content, want):
			return fmt.Errorf("%w: output %q of request %d differs at byte %d", errUnexpected, name, message+1, differsAt(content, want))
		}
	}
	return nil
}

func differsAt(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// grpcContents returns the outputs of an answer as the wire has them.
func grpcContents(answer []byte) (map[string][]byte, error) {
	var m pb.ModelInferResponse
	if err := proto.Unmarshal(answer, &m); err != nil {
		return nil, err
	}
	list := make(map[string][]byte)
	for i, o := range m.GetOutputs() {
		if i < len(m.GetRawOutputContents()) {
			list[o.GetName()] = m.GetRawOutputContents()[i]
		}
	}
	return list, nil
}

// An httpAnswer is the JSON of an answer.
type httpAnswer struct {
	Outputs []struct {
		Name, Datatype string
		Parameters     struct {
			Size *int `json:"binary_data_size"`
		}
		Data []any
	}
}

// httpContents is grpcContents for an HTTP answer: what is in its JSON is turned
// into bytes, what follows it is taken as it is.
func httpContents(answer []byte) (map[string][]byte, error) {
	var head httpAnswer
	d := json.NewDecoder(bytes.NewReader(answer))
	d.UseNumber()
	if err := d.Decode(&head); err != nil {
		return nil, err
	}
	tail := answer[d.InputOffset():]
	list := make(map[string][]byte)
	for _, o := range head.Outputs {
		if o.Parameters.Size == nil {
			t, _ := tensor.ParseType(o.Datatype)
			var data []byte
			var err error
			for _, v := range o.Data {
				if data, err = client.AppendElement(data, t, v); err != nil {
					return nil, fmt.Errorf("output %q: %w", o.Name, err)
				}
			}
			list[o.Name] = data
			continue
		}
		n := *o.Parameters.Size
		if n < 0 || n > len(tail) {
			return nil, fmt.Errorf("output %q has %d bytes of %d that are left", o.Name, n, len(tail))
		}
		list[o.Name], tail = tail[:n], tail[n:]
	}
	return list, nil
}
