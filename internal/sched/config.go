package sched

import (
	"slices"
	"time"

	"shoal/internal/model"
	"shoal/internal/model/modelpb"
)

// NewBatcherConfig returns what a normalised configuration's dynamic_batching
// asks for. It must be there.
func NewBatcherConfig(cfg *modelpb.ModelConfig, sig *model.Signature) BatcherConfig {
	db := cfg.GetDynamicBatching()
	maxRows := max(1, sig.MaxBatch)
	c := BatcherConfig{
		Policy:        Policy{MaxRows: maxRows, Preferred: preferredSizes(db.GetPreferredBatchSize(), maxRows), Delay: micros(db.GetMaxQueueDelayMicroseconds())},
		PreserveOrder: db.GetPreserveOrdering(),
		NoGather:      !model.Gathers(cfg),
		Signature:     sig,
	}
	for n := range max(1, db.GetPriorityLevels()) {
		policy := db.GetPriorityQueuePolicy()[n+1]
		if policy == nil || db.GetPriorityLevels() == 0 {
			policy = db.GetDefaultQueuePolicy()
		}
		c.Levels = append(c.Levels, queuePolicy(policy))
	}
	if db.GetPriorityLevels() > 0 {
		c.DefaultLevel = int(db.GetDefaultPriorityLevel()) - 1
	}
	return c
}

// preferredSizes returns the sizes in ascending order, each once. A model
// without a batch dimension has requests of one row only.
func preferredSizes(sizes []int32, maxRows int) []int {
	var list []int
	for _, n := range sizes {
		list = append(list, min(int(n), maxRows))
	}
	if len(list) == 0 {
		list = []int{maxRows}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func queuePolicy(p *modelpb.ModelQueuePolicy) QueuePolicy {
	return QueuePolicy{
		MaxSize:  int(p.GetMaxQueueSize()),
		Timeout:  micros(p.GetDefaultTimeoutMicroseconds()),
		Override: p.GetAllowTimeoutOverride(),
		Delay:    p.GetTimeoutAction() == modelpb.ModelQueuePolicy_DELAY,
	}
}

// micros returns a number of microseconds, bounded by what a Duration can hold.
func micros(n uint64) time.Duration {
	const most = uint64(1<<63-1) / uint64(time.Microsecond)
	return time.Duration(min(n, most)) * time.Microsecond
}
