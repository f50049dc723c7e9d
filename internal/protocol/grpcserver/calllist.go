package grpcserver

// A callList is an intrusive list of calls, so that it takes no memory and a
// call can be removed from anywhere. A call is in one list at a time for each
// kind of list.
type callList struct {
	kind        int
	first, last *call
	n           int
}

// The kinds of lists: calls that wait to send, and calls whose message is
// awaited.
const (
	listSend = iota
	listReceive
	listKinds
)

// A link is a call's position in a list.
type link struct {
	list       *callList
	prev, next *call
}

func (l *callList) push(s *call) {
	at := &s.links[l.kind]
	*at = link{list: l, prev: l.last}
	if l.last != nil {
		l.last.links[l.kind].next = s
	} else {
		l.first = s
	}
	l.last = s
	l.n++
}

// unlist removes a call from its list of a kind, if any.
func (s *call) unlist(kind int) {
	at := &s.links[kind]
	l := at.list
	if l == nil {
		return
	}
	if at.prev != nil {
		at.prev.links[kind].next = at.next
	} else {
		l.first = at.next
	}
	if at.next != nil {
		at.next.links[kind].prev = at.prev
	} else {
		l.last = at.prev
	}
	l.n--
	*at = link{}
}
