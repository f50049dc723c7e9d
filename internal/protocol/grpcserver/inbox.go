package grpcserver

import (
	"io"
	"sync"
)

// An inbox holds the unread messages of a stream. The client's window bounds
// them.
type inbox struct {
	wake chan struct{} // buffered 1: something changed

	mu    sync.Mutex // protects the fields below
	queue []message
	err   error // what comes after them
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// add adds a message, unless the inbox is closed.
func (b *inbox) add(m message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		m.data.Free()
		return
	}
	b.queue = append(b.queue, m)
	b.signal()
}

// finish marks that there will be no more messages.
func (b *inbox) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = io.EOF
	}
	b.signal()
}

// close marks that there will be no more messages, and drops the unread ones.
func (b *inbox) close(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil || b.err == io.EOF {
		b.err = err
	}
	for _, m := range b.queue {
		m.data.Free()
	}
	b.queue = nil
	b.signal()
}

func (b *inbox) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue) == 0
}

// next waits for a message. Only one goroutine may call it at a time.
func (b *inbox) next() (message, error) {
	for {
		b.mu.Lock()
		switch {
		case len(b.queue) > 0:
			m := b.queue[0]
			b.queue[0] = message{}
			b.queue = b.queue[1:]
			b.mu.Unlock()
			return m, nil
		case b.err != nil:
			defer b.mu.Unlock()
			b.signal() // for a goroutine that asks again
			return message{}, b.err
		}
		b.mu.Unlock()
		<-b.wake
	}
}
