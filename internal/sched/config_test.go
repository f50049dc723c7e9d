package sched

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"

	"shoal/internal/model"
	"shoal/internal/model/modelpb"
)

func TestNewBatcherConfig(t *testing.T) {
	tests := []struct {
		name, text string
		want       BatcherConfig
	}{
		{
			"an empty one", `max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 8 ] }`,
			BatcherConfig{Policy: &Triton{MaxRows: 8, Preferred: []int{8}}, Levels: []QueuePolicy{{}}},
		},
		{
			"sizes are put in order, a delay is given", `max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 6, 2, 6 ] max_queue_delay_microseconds: 100 preserve_ordering: true }`,
			BatcherConfig{Policy: &Triton{MaxRows: 8, Preferred: []int{2, 6}, Delay: 100 * time.Microsecond}, PreserveOrder: true, Levels: []QueuePolicy{{}}},
		},
		{
			"a model without a batch dimension", `dynamic_batching { default_queue_policy { max_queue_size: 3 } }`,
			BatcherConfig{Policy: &Triton{MaxRows: 1, Preferred: []int{1}}, Levels: []QueuePolicy{{MaxSize: 3}}},
		},
		{
			"levels have their own policies or the default one", `max_batch_size: 4 dynamic_batching { preferred_batch_size: 4 priority_levels: 3 default_priority_level: 2
			  default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5 allow_timeout_override: true }
			  priority_queue_policy { key: 1 value { max_queue_size: 7 } } }`,
			BatcherConfig{
				Policy: &Triton{MaxRows: 4, Preferred: []int{4}}, DefaultLevel: 1, Priorities: []uint64{1, 2, 3}, MaxPriority: 3,
				Levels: []QueuePolicy{
					{MaxSize: 7},
					{Timeout: 5 * time.Microsecond, Override: true, Delay: true},
					{Timeout: 5 * time.Microsecond, Override: true, Delay: true},
				},
			},
		},
		{
			"a delay beyond all bounds", `max_batch_size: 1 dynamic_batching { preferred_batch_size: 1 max_queue_delay_microseconds: 18446744073709551615 }`,
			BatcherConfig{Policy: &Triton{MaxRows: 1, Preferred: []int{1}, Delay: 9223372036854775 * time.Microsecond}, Levels: []QueuePolicy{{}}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := new(modelpb.ModelConfig)
			if err := prototext.Unmarshal([]byte(tt.text), cfg); err != nil {
				t.Fatal(err)
			}
			sig := model.NewSignature(cfg)
			tt.want.Signature = sig
			if diff := cmp.Diff(tt.want, NewBatcherConfig(cfg, sig, model.BatchingTriton)); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAutoNeedsNoDynamicBatching(t *testing.T) {
	c := NewBatcherConfig(new(modelpb.ModelConfig), &model.Signature{MaxBatch: 8}, model.BatchingAuto)
	if a, ok := c.Policy.(*Auto); !ok || a.MaxRows != 8 || len(c.Levels) != 1 {
		t.Errorf("got %T and %d levels, want Auto with 8 rows and one level", c.Policy, len(c.Levels))
	}
}

func TestFillHasTheDelay(t *testing.T) {
	cfg := &modelpb.ModelConfig{SchedulingChoice: &modelpb.ModelConfig_DynamicBatching{DynamicBatching: &modelpb.ModelDynamicBatching{MaxQueueDelayMicroseconds: 3000}}}
	c := NewBatcherConfig(cfg, &model.Signature{MaxBatch: 8}, model.BatchingFill)
	if f, ok := c.Policy.(*Fill); !ok || f.MaxRows != 8 || f.Delay != 3*time.Millisecond {
		t.Errorf("got %+v, want Fill with 8 rows and 3ms", c.Policy)
	}
}

func TestPrioritiesBeyondCountShareLevelsInOrder(t *testing.T) {
	cfg := new(modelpb.ModelConfig)
	text := `max_batch_size: 4 dynamic_batching { preferred_batch_size: 4 priority_levels: 18446744073709551615 default_priority_level: 5000
	  priority_queue_policy { key: 18446744073709551615 value { max_queue_size: 7 } } }`
	if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
		t.Fatal(err)
	}
	c := NewBatcherConfig(cfg, model.NewSignature(cfg), model.BatchingTriton)
	q := queue{priorities: newPriorities(&c), levels: make([]level, len(c.Levels)), defaultLevel: c.DefaultLevel}
	if n := len(c.Levels); n > 2000 {
		t.Fatalf("got %d levels, want few", n)
	}
	// Of priorities that have a level for themselves, or that are on two sides of
	// one, the greater is the less urgent.
	last := -1
	for _, p := range []uint64{1, 2, 1023, 1024, 1025, 5000, 5001, 18446744073709551615} {
		if got := q.level(p); got <= last {
			t.Errorf("priority %d: got level %d, want one after %d", p, got, last)
		} else {
			last = got
		}
	}
	if got, want := q.level(0), q.level(5000); got != want {
		t.Errorf("no priority: got level %d, want that of the default, %d", got, want)
	}
	if got := c.Levels[q.level(18446744073709551615)].MaxSize; got != 7 {
		t.Errorf("the last priority: got max size %d, want its own, 7", got)
	}
	if got := c.Levels[q.level(6000)].MaxSize; got != 0 {
		t.Errorf("a priority without a policy: got max size %d, want the default, 0", got)
	}
}
