package python

import (
	"encoding/binary"
	"math"
	"time"

	"shoal/internal/infer"
)

// appendExtras appends what the requests have in addition to tensors; for most
// this is nothing.
func (m *loaded) appendExtras(b []byte, requests []*infer.Request) []byte {
	for n, r := range requests {
		i := uint32(n)
		if r.ID != "" {
			b = appendText(b, i, tagID, r.ID)
		}
		if r.Priority != 0 {
			b = appendNumber(b, i, tagPriority, r.Priority)
		}
		if r.Timeout != 0 {
			b = appendNumber(b, i, tagTimeout, uint64(r.Timeout/time.Microsecond))
		}
		if q := &r.Sequence; *q != (infer.Sequence{}) {
			b = appendSequence(b, i, q)
		}
		if r.Trace != nil {
			b = appendText(b, i, tagTrace, r.Trace.Traceparent())
		}
		if len(r.Outputs) > 0 {
			b = m.appendWanted(b, i, r.Outputs)
		}
		for j := range r.Params {
			b = appendParam(b, i, &r.Params[j])
		}
	}
	return b
}

func appendSequence(b []byte, i uint32, q *infer.Sequence) []byte {
	if q.ID != 0 {
		b = appendNumber(b, i, tagSequence, q.ID)
	}
	if q.StringID != "" {
		b = appendText(b, i, tagSequenceText, q.StringID)
	}
	flags := byte(0)
	if q.Start {
		flags |= 1
	}
	if q.End {
		flags |= 2
	}
	return append(appendItem(b, i, tagFlags, 0, "", 1), flags)
}

func (m *loaded) appendWanted(b []byte, i uint32, wanted []infer.Wanted) []byte {
	b = appendItem(b, i, tagWanted, 0, "", 2*len(wanted))
	for j := range wanted {
		b = binary.LittleEndian.AppendUint16(b, uint16(m.sig.Output(wanted[j].Name)))
	}
	return b
}

func appendParam(b []byte, i uint32, p *infer.Param) []byte {
	switch p.Kind {
	case infer.ParamInt:
		return binary.LittleEndian.AppendUint64(appendItem(b, i, tagParam, p.Kind, p.Name, 8), uint64(p.Int))
	case infer.ParamUint:
		return binary.LittleEndian.AppendUint64(appendItem(b, i, tagParam, p.Kind, p.Name, 8), p.Uint)
	case infer.ParamFloat:
		return binary.LittleEndian.AppendUint64(appendItem(b, i, tagParam, p.Kind, p.Name, 8), math.Float64bits(p.Float))
	case infer.ParamBool:
		value := byte(0)
		if p.Bool {
			value = 1
		}
		return append(appendItem(b, i, tagParam, p.Kind, p.Name, 1), value)
	}
	return append(appendItem(b, i, tagParam, p.Kind, p.Name, len(p.String)), p.String...)
}

func appendText(b []byte, i uint32, tag byte, text string) []byte {
	return append(appendItem(b, i, tag, 0, "", len(text)), text...)
}

func appendNumber(b []byte, i uint32, tag byte, n uint64) []byte {
	return binary.LittleEndian.AppendUint64(appendItem(b, i, tag, 0, "", 8), n)
}

// appendItem appends the header of an item whose value has size bytes.
func appendItem(b []byte, i uint32, tag byte, kind infer.ParamKind, name string, size int) []byte {
	name = name[:min(len(name), math.MaxUint16)]
	b = binary.LittleEndian.AppendUint32(b, i)
	b = append(b, tag, byte(kind))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(name)))
	b = binary.LittleEndian.AppendUint32(b, uint32(size))
	return append(b, name...)
}
