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
			BatcherConfig{Policy: Policy{MaxRows: 8, Preferred: []int{8}}, Levels: []QueuePolicy{{}}},
		},
		{
			"sizes are put in order, a delay is given", `max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 6, 2, 6 ] max_queue_delay_microseconds: 100 preserve_ordering: true }`,
			BatcherConfig{Policy: Policy{MaxRows: 8, Preferred: []int{2, 6}, Delay: 100 * time.Microsecond}, PreserveOrder: true, Levels: []QueuePolicy{{}}},
		},
		{
			"batches of exactly what waits", `max_batch_size: 2 dynamic_batching { preferred_batch_size: 2 } parameters { key: "SHOAL_GATHER" value { string_value: "no" } }`,
			BatcherConfig{Policy: Policy{MaxRows: 2, Preferred: []int{2}}, NoGather: true, Levels: []QueuePolicy{{}}},
		},
		{
			"a model without a batch dimension", `dynamic_batching { default_queue_policy { max_queue_size: 3 } }`,
			BatcherConfig{Policy: Policy{MaxRows: 1, Preferred: []int{1}}, Levels: []QueuePolicy{{MaxSize: 3}}},
		},
		{
			"levels have their own policies or the default one", `max_batch_size: 4 dynamic_batching { preferred_batch_size: 4 priority_levels: 3 default_priority_level: 2
			  default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5 allow_timeout_override: true }
			  priority_queue_policy { key: 1 value { max_queue_size: 7 } } }`,
			BatcherConfig{
				Policy: Policy{MaxRows: 4, Preferred: []int{4}}, DefaultLevel: 1,
				Levels: []QueuePolicy{
					{MaxSize: 7},
					{Timeout: 5 * time.Microsecond, Override: true, Delay: true},
					{Timeout: 5 * time.Microsecond, Override: true, Delay: true},
				},
			},
		},
		{
			"a delay beyond all bounds", `max_batch_size: 1 dynamic_batching { preferred_batch_size: 1 max_queue_delay_microseconds: 18446744073709551615 }`,
			BatcherConfig{Policy: Policy{MaxRows: 1, Preferred: []int{1}, Delay: 9223372036854775 * time.Microsecond}, Levels: []QueuePolicy{{}}},
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
			if diff := cmp.Diff(tt.want, NewBatcherConfig(cfg, sig)); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
		})
	}
}
