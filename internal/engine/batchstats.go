package engine

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// batchTable has the counters of executions by their rows. The counters are in
// pages that are made when first needed, each for the sizes up to the next
// power of two, so that finding them takes no lock.
type batchTable struct {
	pages [bits.UintSize + 1]atomic.Pointer[batchPage]
}

type batchPage []atomic.Pointer[batchCounters]

type batchCounters struct{ count, inputNs, inferNs, outputNs atomic.Uint64 }

func (bc *batchCounters) add(input, run, output time.Duration) {
	bc.count.Add(1)
	bc.inputNs.Add(nanos(input))
	bc.inferNs.Add(nanos(run))
	bc.outputNs.Add(nanos(output))
}

// at returns the counters of executions with that many rows.
func (t *batchTable) at(rows int) *batchCounters {
	k := bits.Len(uint(rows))
	page := t.pages[k].Load()
	if page == nil {
		made := make(batchPage, 1<<max(k-1, 0))
		t.pages[k].CompareAndSwap(nil, &made)
		page = t.pages[k].Load()
	}
	at := &(*page)[rows&(len(*page)-1)]
	if bc := at.Load(); bc != nil {
		return bc
	}
	at.CompareAndSwap(nil, new(batchCounters))
	return at.Load()
}

// list returns the sizes that occurred, rising, and the total number of
// executions.
func (t *batchTable) list() (sizes []BatchStatistics, executions uint64) {
	for k := range t.pages {
		page := t.pages[k].Load()
		if page == nil {
			continue
		}
		for i := range *page {
			bc := (*page)[i].Load()
			if bc == nil {
				continue
			}
			size := i
			if k > 0 {
				size += 1 << (k - 1)
			}
			n := bc.count.Load()
			executions += n
			sizes = append(sizes, BatchStatistics{
				Size:         size,
				ComputeInput: Duration{n, bc.inputNs.Load()}, ComputeInfer: Duration{n, bc.inferNs.Load()}, ComputeOutput: Duration{n, bc.outputNs.Load()},
			})
		}
	}
	return sizes, executions
}
