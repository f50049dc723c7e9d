package grpcserver

// indexing is what the client's HPACK table holds of ours: the two fields that
// almost every answer has. All others are sent literally, so that the indices
// of these are known.
type indexing struct {
	off         bool // the client's table is too small
	tell        bool // the client was not told yet that it is not used
	contentType byte // indices; zero when absent
	ok          byte
}

// The indices in HPACK's table that are used here.
const (
	indexStatus200   = 8
	indexStatus      = 8 // its name
	indexContentType = 31
	indexFirst       = 62 // the place of the latest
)

// appendContentType appends the usual content type.
func (x *indexing) appendContentType(b []byte) []byte {
	switch {
	case x.off:
		return appendString(appendInt(b, 0, 4, indexContentType), contentType)
	case x.contentType != 0:
		return append(b, 0x80|x.contentType)
	}
	x.contentType = indexFirst
	if x.ok != 0 {
		x.ok++
	}
	return appendString(append(b, 0x40|indexContentType), contentType)
}

// appendOK appends the status of a successful call.
func (x *indexing) appendOK(b []byte) []byte {
	switch {
	case x.off:
		return appendString(appendString(append(b, 0), "grpc-status"), "0")
	case x.ok != 0:
		return append(b, 0x80|x.ok)
	}
	x.ok = indexFirst
	if x.contentType != 0 {
		x.contentType++
	}
	return appendString(appendString(append(b, 0x40), "grpc-status"), "0")
}

// appendInt appends an HPACK integer whose first byte has other bits above the
// prefix.
func appendInt(b []byte, first byte, prefix, n int) []byte {
	limit := 1<<prefix - 1
	if n < limit {
		return append(b, first|byte(n))
	}
	b = append(b, first|byte(limit))
	for n -= limit; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

func appendString(b []byte, s string) []byte {
	return append(appendInt(b, 0, 7, len(s)), s...)
}

// appendField appends a literal field that is in no table.
func appendField(b []byte, name, value string) []byte {
	return appendString(appendString(append(b, 0), name), value)
}

// appendTableSize tells the client, once, that its table is not used.
func (x *indexing) appendTableSize(b []byte) []byte {
	if !x.tell {
		return b
	}
	x.tell = false
	return append(b, 0x20)
}
