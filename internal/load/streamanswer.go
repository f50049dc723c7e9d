package load

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// A streamAnswer is what must be known of a ModelStreamInferResponse.
type streamAnswer struct {
	fault string // the error that it is, if it is one
	final bool   // the last answer to its request
	empty bool   // there are no outputs: it says only that it is the last
}

// The fields of the protocol's messages that are looked at.
const (
	fieldFault      = 1 // of ModelStreamInferResponse
	fieldAnswer     = 2
	fieldParameters = 4 // of ModelInferResponse
	fieldOutputs    = 5
	fieldKey        = 1 // of a map's entry
	fieldValue      = 2
	fieldBool       = 1 // of InferParameter
)

const finalParameter = "triton_final_response"

// parseStreamAnswer looks into an encoded ModelStreamInferResponse, and returns
// the ModelInferResponse inside.
func parseStreamAnswer(b []byte) (a streamAnswer, inner []byte, err error) {
	err = eachField(b, func(n protowire.Number, v []byte) error {
		switch n {
		case fieldFault:
			a.fault = string(v)
		case fieldAnswer:
			inner = v
		}
		return nil
	})
	if err != nil {
		return a, nil, err
	}
	a.empty = true
	err = eachField(inner, func(n protowire.Number, v []byte) error {
		switch n {
		case fieldOutputs:
			a.empty = false
		case fieldParameters:
			final, err := isFinal(v)
			a.final = a.final || final
			return err
		}
		return nil
	})
	a.empty = a.empty && a.final
	return a, inner, err
}

// isFinal says whether an entry of the parameters marks the last answer.
func isFinal(entry []byte) (bool, error) {
	named, set := false, false
	err := eachField(entry, func(n protowire.Number, v []byte) error {
		switch n {
		case fieldKey:
			named = string(v) == finalParameter
		case fieldValue:
			for len(v) > 0 {
				n, t, size := protowire.ConsumeTag(v)
				if size < 0 {
					return protowire.ParseError(size)
				}
				if v = v[size:]; n == fieldBool && t == protowire.VarintType {
					b, _ := protowire.ConsumeVarint(v)
					set = b != 0
				}
				if size = protowire.ConsumeFieldValue(n, t, v); size < 0 {
					return protowire.ParseError(size)
				}
				v = v[size:]
			}
		}
		return nil
	})
	return named && set, err
}

// eachField calls do with every field of a message that has a length.
func eachField(b []byte, do func(n protowire.Number, v []byte) error) error {
	for len(b) > 0 {
		n, t, size := protowire.ConsumeTag(b)
		if size < 0 {
			return fmt.Errorf("%w: %w", errProtocol, protowire.ParseError(size))
		}
		b = b[size:]
		if size = protowire.ConsumeFieldValue(n, t, b); size < 0 {
			return fmt.Errorf("%w: %w", errProtocol, protowire.ParseError(size))
		}
		if t == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b)
			if err := do(n, v); err != nil {
				return err
			}
		}
		b = b[size:]
	}
	return nil
}
