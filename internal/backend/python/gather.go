package python

import (
	"encoding/binary"

	"shoal/internal/infer"
	"shoal/internal/status"
	"shoal/internal/tensor"
)

// A column is one input of a batch: the same input of all its requests.
type column struct {
	port  *port
	index int // among the model's inputs
	// stacked means that the rows of the requests are contiguous, as one
	// tensor; otherwise each request has its own shape, or lacks the input.
	stacked bool
	// lendable means that the worker may map its rows.
	lendable bool
	size     int // of the data of all requests
	offset   int
}

// A layout is how a batch is laid out in our half of a slot.
type layout struct {
	columns  []column
	places   []int // by request: the index of its next input without a column
	table    int   // bytes of the table
	extras   []byte
	extrasAt int
	mapsAt   int
	size     int
	texts    int // columns of strings

	described []byte // the table
	maps      []byte // the rows that the worker maps
}

// lay computes the offsets of the batch's parts. With maps the worker can map rows.
func (l *layout) lay(m *loaded, requests []*infer.Request, maps bool) {
	l.columns, l.places, l.texts = l.columns[:0], l.places[:0], 0
	for range requests {
		l.places = append(l.places, 0)
	}
	l.table = (4*len(requests) + 7) &^ 7
	for i := range m.inputs {
		l.addColumn(&m.inputs[i], i, requests)
	}
	at, mapped := align(headSize+l.table), 0
	for i := range l.columns {
		if c := &l.columns[i]; c.port.Type != tensor.Bytes {
			if maps && c.stacked && c.size >= minLent && isLendable(c.port.Type) {
				at = (at + pageSize - 1) &^ (pageSize - 1)
				c.lendable = true
				mapped += len(requests)
			}
			c.offset, at = at, align(at+c.size)
		}
	}
	for i := range l.columns { // strings vary in size: after everything of fixed size
		if c := &l.columns[i]; c.port.Type == tensor.Bytes {
			c.offset, at = at, align(at+c.size)
		}
	}
	l.extras = m.appendExtras(l.extras[:0], requests)
	l.extrasAt = at
	l.mapsAt = align(at + len(l.extras))
	l.size = l.mapsAt + mapped*mapEntry
}

// addColumn adds the model's input of that index, if any request has it.
func (l *layout) addColumn(x *port, index int, requests []*infer.Request) {
	c := column{port: x, index: index, stacked: x.batched || len(requests) == 1}
	var first tensor.Shape
	present := 0
	for n, r := range requests {
		input := at(r, l.places[n], index)
		if input == nil {
			continue
		}
		l.places[n]++
		present++
		c.size += input.Data.Size()
		if first == nil {
			first = input.Shape
		} else if c.stacked && !input.Shape[1:].Equal(first[1:]) {
			c.stacked = false
		}
	}
	if present == 0 {
		return
	}
	entries := 1
	if present < len(requests) {
		c.stacked = false
	}
	if !c.stacked {
		entries = len(requests)
	}
	if x.Type == tensor.Bytes {
		l.texts++
	}
	l.table += 8 + entries*(16+8*x.rank())
	l.columns = append(l.columns, c)
}

// at returns a request's input at place if it has that index.
func at(r *infer.Request, place, index int) *infer.Input {
	if place < len(r.Inputs) && r.Inputs[place].Index == index {
		return &r.Inputs[place]
	}
	return nil
}

// gather writes the batch into the slot: the only copy of a tensor on its way
// from the socket to the handler. Rows that the worker can map are not copied.
func (r *run) gather(s *slot, rows int) (size int, err error) {
	l, requests := &r.layout, r.requests
	l.lay(r.in.model, requests, r.link.maps)
	if l.size > half {
		return 0, status.Errorf(status.InvalidArgument, "the inputs of a batch of model '%s' have %d bytes, and at most %d fit a worker's memory", r.in.model.sig.Name, l.size, int64(half))
	}
	if err := s.reach(l.size); err != nil {
		return 0, err
	}
	s.usedIn = l.size
	mem := s.in // the batch's number is added when it is sent
	binary.LittleEndian.PutUint32(mem[8:], uint32(l.table))
	binary.LittleEndian.PutUint32(mem[12:], uint32(len(l.extras)))
	binary.LittleEndian.PutUint32(mem[16:], uint32(len(requests)))
	binary.LittleEndian.PutUint32(mem[20:], uint32(rows))
	binary.LittleEndian.PutUint32(mem[24:], l.flags())
	binary.LittleEndian.PutUint64(mem[32:], uint64(l.extrasAt))
	r.copies.Begin(l.size)
	l.write(&r.copies, r.link, mem, requests, rows)
	r.copies.End()
	binary.LittleEndian.PutUint64(mem[mapsAt:], uint64(l.mapsAt))
	binary.LittleEndian.PutUint64(mem[mapsCountAt:], uint64(len(l.maps)/mapEntry))
	copy(mem[l.mapsAt:], l.maps)
	s.describe(l.described)
	copy(mem[l.extrasAt:], l.extras)
	return l.size, nil
}

// flags tells the worker whether to cache the table: offsets after strings and
// shapes of single requests differ from batch to batch.
func (l *layout) flags() uint32 {
	for i := range l.columns {
		if !l.columns[i].stacked {
			return flagUncached
		}
	}
	if l.texts > 1 {
		return flagUncached
	}
	return 0
}

// write writes the data, and stores the table in described.
func (l *layout) write(copies *infer.Copies, to *link, mem []byte, requests []*infer.Request, rows int) {
	clear(l.places)
	l.maps = l.maps[:0]
	table := l.described[:0]
	for _, r := range requests {
		table = binary.LittleEndian.AppendUint32(table, uint32(r.Rows))
	}
	if len(requests)%2 == 1 {
		table = binary.LittleEndian.AppendUint32(table, 0)
	}
	for i := range l.columns {
		c := &l.columns[i]
		kind := byte(1)
		if c.stacked {
			kind = 0
		}
		table = binary.LittleEndian.AppendUint16(table, uint16(c.index))
		table = append(table, byte(c.port.Type), kind)
		table = binary.LittleEndian.AppendUint32(table, uint32(c.port.rank()))
		if c.stacked {
			table = l.writeStacked(c, copies, to, table, mem, requests, rows)
		} else {
			table = c.writeSeparate(copies, table, mem, requests, l.places)
		}
	}
	l.described = table
}

func (l *layout) writeStacked(c *column, copies *infer.Copies, to *link, table, mem []byte, requests []*infer.Request, rows int) []byte {
	size := c.size
	if c.port.Type == tensor.Bytes {
		size = 0 // it would make the table different with every batch
	}
	var room [maxRank + 1]int64
	shape := c.port.handlerShape(room[:0], requests[0].Inputs[l.places[0]].Shape, int64(rows))
	table = appendEntry(table, c.offset, size, shape)
	at := c.offset
	for n, r := range requests {
		data := r.Inputs[l.places[n]].Data
		l.places[n]++
		if c.lendable && to.lend(data, at) {
			l.maps = appendMap(l.maps, at, data)
			at += len(data.First)
			continue
		}
		at += copies.Add(mem[at:c.offset+c.size], data)
	}
	return table
}

func (c *column) writeSeparate(copies *infer.Copies, table, mem []byte, requests []*infer.Request, places []int) []byte {
	offset := c.offset
	for n, r := range requests {
		var room [maxRank + 1]int64
		input := at(r, places[n], c.index)
		if input == nil {
			table = appendEntry(table, 0, -1, room[:c.port.rank()])
			continue
		}
		places[n]++
		shape := c.port.handlerShape(room[:0], input.Shape, int64(r.Rows))
		size := copies.Add(mem[offset:], input.Data)
		table = appendEntry(table, offset, size, shape)
		offset += size
	}
	return table
}

func appendMap(b []byte, offset int, d infer.Data) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(offset))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(d.First)))
	b = binary.LittleEndian.AppendUint64(b, d.Shared.ID)
	return binary.LittleEndian.AppendUint64(b, uint64(d.Shared.Offset(d.First)))
}

func appendEntry(table []byte, offset, size int, shape tensor.Shape) []byte {
	table = binary.LittleEndian.AppendUint64(table, uint64(offset))
	table = binary.LittleEndian.AppendUint64(table, uint64(size))
	for _, d := range shape {
		table = binary.LittleEndian.AppendUint64(table, uint64(d))
	}
	return table
}
