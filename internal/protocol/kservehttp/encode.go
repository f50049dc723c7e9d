package kservehttp

import (
	"encoding/binary"
	"math"
	"strconv"

	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// isBinary reports whether an output is sent as bytes: because the request asks
// for it, or because the request lists no outputs and wants all as bytes.
func isBinary(r *infer.Request, o *infer.Output, allBinary bool) bool {
	return !o.Placed && (o.Binary || allBinary && len(r.Outputs) == 0)
}

// appendResponse appends the JSON part of r's response to b. It also returns
// the size of the outputs that must follow it as bytes, in order.
func appendResponse(b []byte, r *infer.Request, allBinary bool) ([]byte, int, error) {
	resp := &r.Response
	b = append(b, '{')
	if r.ID != "" {
		b = appendMember(b, "id")
		b = appendQuoted(b, r.ID)
	}
	b = appendMember(b, "model_name")
	b = appendQuoted(b, resp.Model)
	b = append(b, `,"model_version":"`...)
	b = strconv.AppendInt(b, resp.Version, 10)
	b = append(b, '"')
	if len(resp.Params) > 0 {
		b = appendMember(b, "parameters")
		b = appendParams(b, resp.Params)
	}
	b = append(b, `,"outputs":[`...)
	size := 0
	for i := range resp.Outputs {
		o := &resp.Outputs[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"name":`...)
		b = appendQuoted(b, o.Name)
		b = append(b, `,"datatype":"`...)
		b = append(b, o.Type.String()...)
		b = append(b, `","shape":`...)
		b = appendInts(b, o.Shape)
		if isBinary(r, o, allBinary) {
			b = append(b, `,"parameters":{"binary_data_size":`...)
			b = strconv.AppendInt(b, int64(len(o.Data)), 10)
			b = append(b, '}')
			size += len(o.Data)
		} else if !o.Placed {
			var err error
			b = append(b, `,"data":[`...)
			if b, err = appendData(b, o); err != nil {
				return b, 0, err
			}
			b = append(b, ']')
		}
		b = append(b, '}')
	}
	return append(b, ']', '}'), size, nil
}

// jsonSize returns roughly how many bytes of JSON the outputs of r's response
// will take.
func jsonSize(r *infer.Request, allBinary bool) int {
	n := 0
	for i := range r.Response.Outputs {
		o := &r.Response.Outputs[i]
		if o.Placed || isBinary(r, o, allBinary) {
			continue
		}
		if size := o.Type.Size(); size > 0 {
			n += len(o.Data) / size * elementText(o.Type)
		} else {
			n += len(o.Data) + len(o.Data)/8
		}
	}
	return n
}

// elementText returns how long an element of type t usually is in JSON, with
// the comma.
func elementText(t tensor.Type) int {
	switch t {
	case tensor.Bool, tensor.Uint8, tensor.Int8:
		return 5
	case tensor.Uint16, tensor.Int16:
		return 7
	case tensor.Uint32, tensor.Int32:
		return 12
	}
	return 20
}

// appendParams appends the parameters that a model set.
func appendParams(b []byte, params []infer.Param) []byte {
	b = append(b, '{')
	for i := range params {
		p := &params[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(b, p.Name)
		b = append(b, ':')
		b = appendParam(b, p)
	}
	return append(b, '}')
}

// appendParam appends the value of a parameter.
func appendParam(b []byte, p *infer.Param) []byte {
	switch p.Kind {
	case infer.ParamString:
		return appendQuoted(b, p.String)
	case infer.ParamInt:
		return strconv.AppendInt(b, p.Int, 10)
	case infer.ParamUint:
		return strconv.AppendUint(b, p.Uint, 10)
	case infer.ParamFloat:
		return appendDouble(b, p.Float)
	}
	return strconv.AppendBool(b, p.Bool)
}

// appendData appends the elements of an output, with commas between them.
func appendData(b []byte, o *infer.Output) ([]byte, error) {
	switch o.Type {
	case tensor.Bytes:
		return appendStrings(b, o)
	case tensor.FP16, tensor.BF16:
		return b, status.Errorf(status.InvalidArgument,
			"sending %s data via JSON is not supported. Please use the binary data format for output", o.Type)
	}
	size, p := o.Type.Size(), o.Data
	if size == 0 || len(p)%size != 0 {
		return b, errOutput(o)
	}
	for len(p) > 0 {
		b = appendElement(b, o.Type, p)
		b = append(b, ',')
		p = p[size:]
	}
	if len(o.Data) > 0 {
		b = b[:len(b)-1]
	}
	return b, nil
}

// appendElement appends the first element of p.
func appendElement(b []byte, t tensor.Type, p []byte) []byte {
	le := binary.LittleEndian
	switch t {
	case tensor.Bool:
		return strconv.AppendBool(b, p[0] != 0)
	case tensor.FP32:
		return appendDouble(b, float64(math.Float32frombits(le.Uint32(p))))
	case tensor.FP64:
		return appendDouble(b, math.Float64frombits(le.Uint64(p)))
	}
	return tensor.AppendInteger(b, t, p)
}

// appendStrings appends the elements of a Bytes output.
func appendStrings(b []byte, o *infer.Output) ([]byte, error) {
	for p := o.Data; len(p) > 0; {
		if len(p) < 4 {
			return b, errOutput(o)
		}
		n := int(binary.LittleEndian.Uint32(p))
		if p = p[4:]; n > len(p) {
			return b, errOutput(o)
		}
		b = appendQuoted(b, p[:n])
		if p = p[n:]; len(p) > 0 {
			b = append(b, ',')
		}
	}
	return b, nil
}

// errOutput is the error of a backend whose output does not fit its
// description.
func errOutput(o *infer.Output) error {
	return status.Errorf(status.Internal, "output '%s' of type %s has %d bytes, which is not a whole number of elements", o.Name, o.Type, len(o.Data))
}
