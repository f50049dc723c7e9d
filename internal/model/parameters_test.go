package model

import "testing"

func TestBatchingOf(t *testing.T) {
	const eight = "max_batch_size: 8 "
	by := func(name string) string {
		return ` parameters { key: "SHOAL_BATCHING" value { string_value: "` + name + `" } }`
	}
	tests := []struct {
		name, text              string
		none, underTriton, auto Batching // by what the server chooses
	}{
		{"nothing is asked for", eight, BatchingNone, BatchingNone, BatchingAuto},
		{"nothing can be batched", "max_batch_size: 1", BatchingNone, BatchingNone, BatchingNone},
		{"an empty one", eight + "dynamic_batching { }", BatchingAuto, BatchingTriton, BatchingAuto},
		{"the size that is filled in", eight + "dynamic_batching { preferred_batch_size: 8 }", BatchingAuto, BatchingTriton, BatchingAuto},
		{"a delay", eight + "dynamic_batching { max_queue_delay_microseconds: 1 }", BatchingTriton, BatchingTriton, BatchingAuto},
		{"preferred sizes", eight + "dynamic_batching { preferred_batch_size: [ 4, 8 ] }", BatchingTriton, BatchingTriton, BatchingAuto},
		{"priorities, a queue policy, order", eight + "dynamic_batching { preserve_ordering: true priority_levels: 1 default_priority_level: 1 default_queue_policy { max_queue_size: 9 default_timeout_microseconds: 5 } }", BatchingAuto, BatchingTriton, BatchingAuto},
		{"batches of one row", "max_batch_size: 1 dynamic_batching { }", BatchingTriton, BatchingTriton, BatchingTriton},
		{"no batch dimension", "dynamic_batching { }", BatchingTriton, BatchingTriton, BatchingTriton},
		{"Triton's rules by name", eight + "dynamic_batching { }" + by("triton"), BatchingTriton, BatchingTriton, BatchingTriton},
		{"the policy without settings by name, and a delay", eight + "dynamic_batching { max_queue_delay_microseconds: 1 }" + by("AUTO"), BatchingAuto, BatchingTriton, BatchingAuto},
		{"batches that wait to be full", eight + "dynamic_batching { max_queue_delay_microseconds: 1 }" + by("fill"), BatchingFill, BatchingTriton, BatchingFill},
		{"a name without dynamic_batching", eight + by("auto"), BatchingNone, BatchingNone, BatchingAuto},
		{"sequences", eight + "sequence_batching { }", BatchingNone, BatchingNone, BatchingNone},
	}
	for _, tt := range tests {
		cfg := config(t, tt.text)
		for server, want := range map[Batching]Batching{BatchingNone: tt.none, BatchingTriton: tt.underTriton, BatchingAuto: tt.auto} {
			if got := BatchingOf(cfg, server); got != want {
				t.Errorf("%s, server %q: got %q, want %q", tt.name, server, got, want)
			}
		}
	}
}
