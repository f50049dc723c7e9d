package client

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// A StreamAnswer is the part of a ModelStreamInferResponse that is needed here.
type StreamAnswer struct {
	Fault string // its error; empty when there is none
	Final bool   // the last answer to its request
	Empty bool   // without outputs: it only marks the end
}

// The field numbers of the protocol's messages that are read.
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

// ParseStreamAnswer reads an encoded ModelStreamInferResponse and returns the
// encoded ModelInferResponse inside.
func ParseStreamAnswer(b []byte) (a StreamAnswer, inner []byte, err error) {
	err = eachField(b, func(n protowire.Number, v []byte) error {
		switch n {
		case fieldFault:
			a.Fault = string(v)
		case fieldAnswer:
			inner = v
		}
		return nil
	})
	if err != nil {
		return a, nil, err
	}
	a.Empty = true
	err = eachField(inner, func(n protowire.Number, v []byte) error {
		switch n {
		case fieldOutputs:
			a.Empty = false
		case fieldParameters:
			final, err := isFinal(v)
			a.Final = a.Final || final
			return err
		}
		return nil
	})
	a.Empty = a.Empty && a.Final
	return a, inner, err
}

// isFinal reports whether an entry of the parameters marks the last answer.
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

// eachField calls do with every length-delimited field of a message.
func eachField(b []byte, do func(n protowire.Number, v []byte) error) error {
	for len(b) > 0 {
		n, t, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		if size = protowire.ConsumeFieldValue(n, t, b); size < 0 {
			return protowire.ParseError(size)
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
