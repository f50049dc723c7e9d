package kservehttp

import "encoding/binary"

// stringData reads strings in the form of a Bytes tensor: each after its length
// in four bytes. The engine checks how many there should be. The text is parsed
// twice, first for the size.
func (d *decoder) stringData() ([]byte, dataFault) {
	start := d.pos
	size, why := d.strings(nil)
	if why != dataGood {
		return nil, why
	}
	buf, err := d.r.GrowWithin(size)
	if err != nil {
		d.refused = err
		return nil, dataMemory
	}
	d.pos = start
	n, _ := d.strings(buf)
	return buf[:n], dataGood
}

// strings reads arrays of strings, nested in any way, into buf and returns how
// many bytes they take. Without a buf it returns an upper bound.
func (d *decoder) strings(buf []byte) (int, dataFault) {
	depth, off := 0, 0
	for {
		switch d.peek() {
		case '[':
			if depth++; depth >= maxNesting {
				return 0, dataDepth
			}
			if d.enter(']') {
				continue
			}
			depth--
		case '"':
			raw, escaped, ok := d.str()
			if !ok {
				return 0, dataBroken
			}
			if buf == nil {
				off += 4 + len(raw)
			} else {
				off += putString(buf[off:], raw, escaped)
			}
		default:
			return 0, dataKind
		}
		for {
			if depth == 0 {
				return off, dataGood
			}
			more, ok := d.next(']', faultArray)
			if !ok {
				return 0, dataBroken
			}
			if more {
				break
			}
			depth--
		}
	}
}

// putString stores one element and returns the bytes that it takes.
func putString(to, raw []byte, escaped bool) int {
	n := len(raw)
	if escaped {
		n = len(appendUnescaped(to[4:4], raw))
	} else {
		copy(to[4:], raw)
	}
	binary.LittleEndian.PutUint32(to, uint32(n))
	return 4 + n
}
