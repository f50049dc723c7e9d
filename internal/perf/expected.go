package perf

import (
	"bytes"
	"errors"
	"fmt"

	"shoal/internal/client"
	"shoal/internal/perf/result"
)

// errUnexpected is wrapped by the error about an answer that is not the expected
// one.
var errUnexpected = errors.New("the answer is not the expected one")

// checkAnswer compares an answer with the outputs that its request must get,
// byte by byte.
func (s *Session) checkAnswer(message int, answer []byte) error {
	decode := client.DecodeHTTP
	if s.settings.Protocol == result.GRPC {
		decode = client.DecodeGRPC
	}
	outputs, err := decode(answer)
	got := make(map[string][]byte)
	for i := range outputs {
		if err == nil {
			got[outputs[i].Name], err = outputs[i].Bytes()
		}
	}
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
