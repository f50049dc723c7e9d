package sched

import (
	"slices"
	"time"

	"shoal/internal/model"
	"shoal/internal/model/modelpb"
)

// A BatcherConfig is the configuration of a batcher.
type BatcherConfig struct {
	Policy Policy
	// PreserveOrder makes answers leave in the order in which their requests
	// entered batches.
	PreserveOrder bool
	// Levels are the queue policies by priority, the most urgent first; one at
	// least. DefaultLevel is the index of the one for requests without a
	// priority.
	Levels       []QueuePolicy
	DefaultLevel int
	// Priorities are the first priorities of the levels, ascending from 1, and
	// MaxPriority is the last one of all; without them there are as many
	// priorities as levels.
	Priorities  []uint64
	MaxPriority uint64
	// MinQueued keeps the first requests in the queue until there are this
	// many, for tests that need them together.
	MinQueued int
	// Cores returns how many instances that compute on the threads of their callers
	// run at a time: more of them would take the cores from each other, where fewer
	// have larger batches. Nil is no limit.
	Cores func() int
	// Signature determines which requests can share a batch.
	Signature *model.Signature
}

// NewBatcherConfig returns what a normalised configuration asks for, with a policy
// of the given name, which says that there is one.
func NewBatcherConfig(cfg *modelpb.ModelConfig, sig *model.Signature, by model.Batching) BatcherConfig {
	db := cfg.GetDynamicBatching()
	maxRows := max(1, sig.MaxBatch)
	var policy Policy = NewAuto(maxRows)
	switch by {
	case model.BatchingFill:
		policy = NewFill(maxRows, micros(db.GetMaxQueueDelayMicroseconds()))
	case model.BatchingTriton:
		policy = &Triton{
			MaxRows: maxRows, Preferred: preferredSizes(db.GetPreferredBatchSize(), maxRows),
			Delay: micros(db.GetMaxQueueDelayMicroseconds()),
		}
	}
	c := BatcherConfig{
		Policy:        policy,
		PreserveOrder: db.GetPreserveOrdering(),
		Signature:     sig,
	}
	if db.GetPriorityLevels() == 0 {
		c.Levels = []QueuePolicy{queuePolicy(db.GetDefaultQueuePolicy())}
		return c
	}
	c.Priorities = firstPriorities(db)
	for _, p := range c.Priorities {
		policy := db.GetPriorityQueuePolicy()[p]
		if policy == nil {
			policy = db.GetDefaultQueuePolicy()
		}
		c.Levels = append(c.Levels, queuePolicy(policy))
	}
	c.MaxPriority = db.GetPriorityLevels()
	c.DefaultLevel, _ = slices.BinarySearch(c.Priorities, db.GetDefaultPriorityLevel())
	return c
}

// firstPriorities returns the first priority of each level. A configuration may
// ask for 2^64 levels: beyond the first ones, levels without settings share one
// with their neighbours.
func firstPriorities(db *modelpb.ModelDynamicBatching) []uint64 {
	const apart = 1024
	most := db.GetPriorityLevels()
	var list []uint64
	for p := range min(most, apart+1) { // the last of them begins the shared ones
		list = append(list, p+1)
	}
	add := func(p uint64) {
		if list = append(list, p); p < most {
			list = append(list, p+1) // its neighbours are on another level
		}
	}
	add(db.GetDefaultPriorityLevel())
	for p := range db.GetPriorityQueuePolicy() {
		add(p)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// preferredSizes returns the distinct sizes in ascending order. A model without
// a batch dimension has only requests of one row.
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
