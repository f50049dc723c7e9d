//go:build !linux

package httpserver

// A watcher tells when clients hang up. Only Linux has one; elsewhere a client
// that is gone is noticed when its answer cannot be written.
type watcher struct{}

func startWatcher(func(id uint64, gone bool)) (*watcher, error) { return nil, nil }

func (*watcher) add(*conn) {}

// Close implements the watcher's end.
func (*watcher) Close() {}
