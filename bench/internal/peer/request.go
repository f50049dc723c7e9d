package peer

import (
	"encoding/binary"
	"math"

	"shoal/internal/client"
	"shoal/internal/tensor"
)

// A Tensor is an FP32 input to send.
type Tensor struct {
	Name  string
	Shape []int64
	Data  []float32
}

// Raw returns the tensor's values as the binary extension and gRPC's raw
// contents have them: little-endian, row by row.
func (t Tensor) Raw() []byte {
	b := make([]byte, 0, 4*len(t.Data))
	for _, v := range t.Data {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func (m Model) request() *client.Request {
	r := &client.Request{Model: m.Name}
	for _, t := range m.Inputs {
		r.Inputs = append(r.Inputs, client.Tensor{Name: t.Name, Type: tensor.FP32, Shape: t.Shape, Data: t.Raw()})
	}
	return r
}

// HTTP returns the model's request, and asks for an answer of the same format.
func (m Model) HTTP(f client.Format) (path string, header []client.Header, body []byte, err error) {
	return client.EncodeHTTP(m.request(), f, f)
}

// GRPC returns the model's request as an encoded ModelInferRequest.
func (m Model) GRPC() ([]byte, error) { return client.EncodeGRPC(m.request()) }
