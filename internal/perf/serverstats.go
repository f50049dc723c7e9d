package perf

import (
	"cmp"
	"slices"

	"shoal/internal/client"
	"shoal/internal/perf/result"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
)

// diffStats returns the increase of a model's statistics from before to after.
// Of several versions it takes the newest that was used; it returns nil when
// none was.
func diffStats(before, after []*pb.ModelStatistics) *result.ServerStats {
	var found *result.ServerStats
	used := 0
	for _, a := range after {
		i := slices.IndexFunc(before, func(b *pb.ModelStatistics) bool { return b.GetVersion() == a.GetVersion() })
		b := &pb.ModelStatistics{}
		if i >= 0 {
			b = before[i]
		}
		d := diffVersion(b, a)
		if d.Success.Count == 0 && d.Fail.Count == 0 && d.Inferences == 0 {
			continue
		}
		if used++; found == nil || client.CompareVersions(d.Version, found.Version) > 0 {
			found = d
		}
	}
	if found != nil {
		found.MixedVersion = used > 1
	}
	return found
}

func diffVersion(b, a *pb.ModelStatistics) *result.ServerStats {
	was, is := b.GetInferenceStats(), a.GetInferenceStats()
	s := &result.ServerStats{
		Version:    a.GetVersion(),
		Inferences: grown(b.GetInferenceCount(), a.GetInferenceCount()),
		Executions: grown(b.GetExecutionCount(), a.GetExecutionCount()),
		Success:    diffDuration(was.GetSuccess(), is.GetSuccess()),
		Fail:       diffDuration(was.GetFail(), is.GetFail()),
		Queue:      diffDuration(was.GetQueue(), is.GetQueue()),
		Input:      diffDuration(was.GetComputeInput(), is.GetComputeInput()),
		Infer:      diffDuration(was.GetComputeInfer(), is.GetComputeInfer()),
		Output:     diffDuration(was.GetComputeOutput(), is.GetComputeOutput()),
		CacheHit:   diffDuration(was.GetCacheHit(), is.GetCacheHit()),
		CacheMiss:  diffDuration(was.GetCacheMiss(), is.GetCacheMiss()),
	}
	for _, batch := range a.GetBatchStats() {
		var old *pb.InferBatchStatistics
		for _, o := range b.GetBatchStats() {
			if o.GetBatchSize() == batch.GetBatchSize() {
				old = o
			}
		}
		d := diffDuration(old.GetComputeInfer(), batch.GetComputeInfer())
		if d.Count > 0 {
			s.Batches = append(s.Batches, result.BatchSize{Size: batch.GetBatchSize(), Infer: d})
		}
	}
	slices.SortFunc(s.Batches, func(x, y result.BatchSize) int { return cmp.Compare(x.Size, y.Size) })
	return s
}

func diffDuration(was, is *pb.StatisticDuration) result.Counted {
	return result.Counted{Count: grown(was.GetCount(), is.GetCount()), Ns: grown(was.GetNs(), is.GetNs())}
}

// grown returns how much a counter grew; one that fell was reset.
func grown(was, is uint64) uint64 {
	if is < was {
		return is
	}
	return is - was
}
