package onnx

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"shoal/internal/backend"
	"shoal/internal/model"
)

// warnOfNeighbours warns when a batching model has an operator that makes a
// row's answer depend on the other rows.
func (b *Backend) warnOfNeighbours(src backend.Source, path string, sig *model.Signature) {
	const op = "DynamicQuantizeLinear"
	if sig.MaxBatch <= 1 {
		return
	}
	if fileHas(path, op) {
		b.log.Warn("the model quantizes dynamically, over all rows of a batch at once: a row's answer depends on its neighbours; set max_batch_size to 0 or 1 if that matters",
			"model", src.Model, "version", src.Version, "operator", op)
	}
}

// fileHas reports whether a model file uses one of the operators. A file that
// cannot be scanned has none: ONNX Runtime says what is wrong with it.
func fileHas(path string, ops ...string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	found, err := hasOperator(f, ops...)
	return err == nil && found
}

// Field numbers of the ONNX format on the way to operators.
const (
	modelGraph     = 7
	modelFunctions = 25
	graphNode      = 1
	functionNode   = 7
	nodeOp         = 4
	nodeAttribute  = 5
	attributeGraph = 6
	attributeMany  = 11 // several graphs
)

// A step is what a field of a message leads to.
type step struct {
	field protowire.Number
	to    *message
}

// A message is a part of the format that the scan enters.
type message struct {
	steps []step
	op    protowire.Number // the field with the operator's name, 0 when there is none
}

var fileMessage = func() *message {
	var node, attribute, graph message
	graph.steps = []step{{graphNode, &node}}
	attribute.steps = []step{{attributeGraph, &graph}, {attributeMany, &graph}}
	node.steps, node.op = []step{{nodeAttribute, &attribute}}, nodeOp
	return &message{steps: []step{{modelGraph, &graph}, {modelFunctions, &message{steps: []step{{functionNode, &node}}}}}}
}()

// maxDepth bounds the nesting of graphs. The scan stops there.
const maxDepth = 64

// maxOpName bounds the names that are compared.
const maxOpName = 256

// hasOperator reports whether a model file uses one of the operators, in its
// graph, in nested graphs or in its functions. It reads no weights: a model may
// be larger than memory.
func hasOperator(f io.ReadSeeker, ops ...string) (bool, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return false, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	s := scanner{file: f, in: bufio.NewReaderSize(f, 1<<16), ops: ops}
	return s.scan(fileMessage, size, 0)
}

var errFormat = errors.New("not an ONNX file")

// A scanner walks over the messages of a file.
type scanner struct {
	file io.ReadSeeker
	in   *bufio.Reader
	at   int64 // the bytes read so far
	ops  []string
}

// scan scans the message that ends at end.
func (s *scanner) scan(m *message, end int64, depth int) (bool, error) {
	if depth > maxDepth {
		return false, fmt.Errorf("graphs lie more than %d deep in graphs", maxDepth)
	}
	for s.at < end {
		field, kind, err := s.tag()
		if err != nil {
			return false, err
		}
		if kind != protowire.BytesType {
			if err := s.skipScalar(kind, end); err != nil {
				return false, err
			}
			continue
		}
		found, err := s.bytes(m, field, end, depth)
		if found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// bytes enters, compares or skips a length-delimited field.
func (s *scanner) bytes(m *message, field protowire.Number, end int64, depth int) (bool, error) {
	n, err := s.varint()
	if err != nil {
		return false, err
	}
	if s.at > end || n > uint64(end-s.at) {
		return false, errFormat
	}
	if field == m.op && m.op != 0 && n <= maxOpName {
		name := make([]byte, n)
		if _, err := io.ReadFull(s.in, name); err != nil {
			return false, err
		}
		s.at += int64(n)
		return slices.Contains(s.ops, string(name)), nil
	}
	for _, st := range m.steps {
		if st.field == field {
			return s.scan(st.to, s.at+int64(n), depth+1)
		}
	}
	return false, s.skip(int64(n))
}

func (s *scanner) tag() (protowire.Number, protowire.Type, error) {
	v, err := s.varint()
	if err != nil {
		return 0, 0, err
	}
	field, kind := protowire.DecodeTag(v)
	if field < protowire.MinValidNumber {
		return 0, 0, errFormat
	}
	return field, kind, nil
}

func (s *scanner) varint() (uint64, error) {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		b, err := s.in.ReadByte()
		if err != nil {
			return 0, err
		}
		s.at++
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, errFormat
}

func (s *scanner) skipScalar(kind protowire.Type, end int64) error {
	switch kind {
	case protowire.VarintType:
		_, err := s.varint()
		return err
	case protowire.Fixed32Type, protowire.Fixed64Type:
		n := int64(4)
		if kind == protowire.Fixed64Type {
			n = 8
		}
		if n > end-s.at {
			return errFormat
		}
		return s.skip(n)
	}
	return errFormat // groups are not part of the format
}

// skip skips n bytes, without reading them when they are many.
func (s *scanner) skip(n int64) error {
	s.at += n
	if n <= int64(s.in.Buffered()) {
		_, err := s.in.Discard(int(n))
		return err
	}
	if _, err := s.file.Seek(s.at, io.SeekStart); err != nil {
		return err
	}
	s.in.Reset(s.file)
	return nil
}
