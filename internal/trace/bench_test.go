package trace

import (
	"log/slog"
	"path/filepath"
	"testing"
)

// BenchmarkRequest is what tracing adds to a request: nothing is traced, this one is
// not among those that are, and it is.
func BenchmarkRequest(b *testing.B) {
	for _, bb := range []struct {
		name  string
		level Level
		rate  uint32
	}{{"off", 0, 1}, {"not sampled", Timestamps, 1 << 31}, {"traced", Timestamps, 1}} {
		b.Run(bb.name, func(b *testing.B) {
			c := DefaultConfig()
			c.Level, c.Rate, c.File = bb.level, bb.rate, filepath.Join(b.TempDir(), "trace.json")
			tracer, err := Start(c, nil, slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			defer tracer.Close()
			b.ReportAllocs()
			for b.Loop() {
				if tracer.On() {
					request(tracer, "m")
				}
			}
		})
	}
}
