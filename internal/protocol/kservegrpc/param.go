package kservegrpc

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"shoal/internal/infer"
)

// A param is a parameter whose value may be missing.
type param struct {
	infer.Param
	set bool
}

// param appends an entry of a map of parameters.
func (m *message) param(dst []param, b []byte) ([]param, error) {
	if err := m.checkEntries(len(dst)); err != nil {
		return dst, err
	}
	dst = append(dst, param{})
	p := &dst[len(dst)-1]
	for len(b) > 0 {
		num, typ, rest, err := nextField(b)
		if err != nil {
			return dst, err
		}
		var v []byte
		switch {
		case num == 1 && typ == protowire.BytesType:
			p.Name, rest, err = takeString(rest)
		case num == 2 && typ == protowire.BytesType:
			if v, rest, err = takeBytes(rest); err == nil {
				err = p.value(v)
			}
		default:
			rest, err = skipValue(num, typ, rest)
		}
		if err != nil {
			return dst, err
		}
		b = rest
	}
	return dst, nil
}

// value reads an InferParameter, of whose choices the last one counts.
func (p *param) value(b []byte) error {
	for len(b) > 0 {
		num, typ, rest, err := nextField(b)
		if err != nil {
			return err
		}
		v := infer.Param{Name: p.Name}
		known := true
		var n uint64
		switch {
		case num == 1 && typ == protowire.VarintType:
			n, rest, err = takeVarint(rest)
			v.Kind, v.Bool = infer.ParamBool, n != 0
		case num == 2 && typ == protowire.VarintType:
			n, rest, err = takeVarint(rest)
			v.Kind, v.Int = infer.ParamInt, int64(n)
		case num == 3 && typ == protowire.BytesType:
			v.Kind = infer.ParamString
			v.String, rest, err = takeString(rest)
		case num == 4 && typ == protowire.Fixed64Type:
			var size int
			n, size = protowire.ConsumeFixed64(rest)
			if size < 0 {
				return errWire
			}
			rest = rest[size:]
			v.Kind, v.Float = infer.ParamFloat, math.Float64frombits(n)
		case num == 5 && typ == protowire.VarintType:
			v.Kind = infer.ParamUint
			v.Uint, rest, err = takeVarint(rest)
		default:
			known = false
			rest, err = skipValue(num, typ, rest)
		}
		if err != nil {
			return err
		}
		if known {
			p.Param, p.set = v, true
		}
		b = rest
	}
	return nil
}

// latest returns ps with only the last of the elements with the same name, as
// in a map. Names keep the order of their first occurrence.
func latest(ps []param) []param {
	if len(ps) < 2 {
		return ps
	}
	var index map[string]int // only for many, so that a long list takes linear time
	if len(ps) > 16 {
		index = make(map[string]int, len(ps))
	}
	kept := ps[:0]
	for _, p := range ps {
		i, ok := find(kept, index, p.Name)
		if ok {
			kept[i] = p
			continue
		}
		if index != nil {
			index[p.Name] = len(kept)
		}
		kept = append(kept, p)
	}
	return kept
}

func find(ps []param, index map[string]int, name string) (int, bool) {
	if index != nil {
		i, ok := index[name]
		return i, ok
	}
	for i := range ps {
		if ps[i].Name == name {
			return i, true
		}
	}
	return 0, false
}
