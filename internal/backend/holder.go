package backend

import "context"

// A Holder is an instance that runs a batch and cannot go on before a request
// that it has sent to another model is answered. The engine refuses requests
// that such instances would wait for without end.
type Holder struct {
	Model   string
	Version int64
	// Parents are the holders that wait for the batch.
	Parents []*Holder
}

type holderKey struct{}

// WithHolder returns a context for the requests that h waits for.
func WithHolder(ctx context.Context, h *Holder) context.Context {
	return context.WithValue(ctx, holderKey{}, h)
}

// HolderOf returns who waits for requests with that context; nil when it is
// nobody that a model could wait for.
func HolderOf(ctx context.Context) *Holder {
	if ctx == nil {
		return nil
	}
	h, _ := ctx.Value(holderKey{}).(*Holder)
	return h
}
