package kservegrpc

import "strings"

// A sequenceKey identifies a sequence of requests, which must run one by one.
type sequenceKey struct {
	model, id string
	number    int64
}

// follow returns the answer that the request of m must wait for: that of the
// previous request in its sequence, nil when there is none.
func (st *inferStream) follow(m *message, a *answer) *answer {
	i, ok := find(m.params, nil, "sequence_id")
	if !ok {
		return nil
	}
	p := &m.params[i]
	if len(st.sequences) > 2*int(st.room.maxRequests) {
		st.forget()
	}
	// The message's strings are given back with it; the key stays.
	key := sequenceKey{model: strings.Clone(m.model), id: strings.Clone(p.String), number: p.Int}
	before := st.sequences[key]
	st.sequences[key] = a
	return before
}

// forget removes the sequences that have nothing in flight.
func (st *inferStream) forget() {
	for key, a := range st.sequences {
		select {
		case <-a.done:
			delete(st.sequences, key)
		default:
		}
	}
}
