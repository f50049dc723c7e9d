package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"shoal/internal/arrivals"
)

// recordArrivals writes arrivals to the file of --record-arrivals. The returned
// function ends that.
func (f *serveFlags) recordArrivals(log *slog.Logger) (end func(), err error) {
	if f.record == "" {
		return func() {}, nil
	}
	file, err := os.Create(f.record)
	if err != nil {
		return nil, fmt.Errorf("--record-arrivals: %w", err)
	}
	rec, err := f.tap.Record(file, nil)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() {
		if err := errors.Join(rec.Close(), file.Close()); err != nil {
			log.Error("arrivals were not all recorded", "file", f.record, "err", err)
		}
	}, nil
}

// withArrivals adds a stream of arrivals to a handler. The stream ends when the
// client stops reading or closing is closed.
func withArrivals(tap *arrivals.Tap, other http.Handler, closing <-chan struct{}) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", other)
	mux.HandleFunc("GET "+arrivals.Path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/jsonl")
		c := http.NewResponseController(w)
		patience := func(d time.Duration) { _ = c.SetWriteDeadline(time.Now().Add(d)) } // an unsupported deadline shows when writing
		patience(listenerPatience)
		rec, err := tap.Record(w, func() {
			_ = c.Flush()
			patience(listenerPatience)
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		select {
		case <-r.Context().Done():
		case <-rec.Broken():
		case <-closing:
		}
		patience(time.Second)
		_ = rec.Close() // nobody is left to tell
	})
	return mux
}

// listenerPatience is how long a reader of arrivals may not read.
const listenerPatience = 30 * time.Second
