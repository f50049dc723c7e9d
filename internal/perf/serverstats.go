package perf

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	pb "shoal/internal/protocol/kservegrpc/inferencepb"
)

// A ServerStats is what the server's statistics grew by.
type ServerStats struct {
	Version      string      `json:"version"` // of the model
	Inferences   uint64      `json:"inference_count"`
	Executions   uint64      `json:"execution_count"`
	Success      Counted     `json:"success"`
	Fail         Counted     `json:"fail"`
	Queue        Counted     `json:"queue"`
	Input        Counted     `json:"compute_input"`
	Infer        Counted     `json:"compute_infer"`
	Output       Counted     `json:"compute_output"`
	CacheHit     Counted     `json:"cache_hit,omitzero"`
	CacheMiss    Counted     `json:"cache_miss,omitzero"`
	Batches      []BatchSize `json:"batches,omitempty"` // by size, rising
	MixedVersion bool        `json:"mixed_version,omitempty"`
}

// A Counted is a number of events and the time that they took together.
type Counted struct {
	Count uint64 `json:"count"`
	Ns    uint64 `json:"ns"`
}

// Mean returns the time of one event; zero when there was none.
func (c Counted) Mean() time.Duration {
	if c.Count == 0 {
		return 0
	}
	return time.Duration(c.Ns / c.Count)
}

// A BatchSize is how often the model ran with so many rows.
type BatchSize struct {
	Size  uint64  `json:"size"`
	Infer Counted `json:"compute_infer"`
}

// diffStats returns what a model's statistics grew by from before to after. Of
// several versions it takes the newest that was used; it returns nil when none
// was.
func diffStats(before, after []*pb.ModelStatistics) *ServerStats {
	var found *ServerStats
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
		if used++; found == nil || compareVersions(d.Version, found.Version) > 0 {
			found = d
		}
	}
	if found != nil {
		found.MixedVersion = used > 1
	}
	return found
}

// compareVersions puts 2 before 10.
func compareVersions(a, b string) int {
	x, errX := strconv.ParseInt(a, 10, 64)
	y, errY := strconv.ParseInt(b, 10, 64)
	if errX != nil || errY != nil {
		return cmp.Compare(a, b)
	}
	return cmp.Compare(x, y)
}

func diffVersion(b, a *pb.ModelStatistics) *ServerStats {
	was, is := b.GetInferenceStats(), a.GetInferenceStats()
	s := &ServerStats{
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
			s.Batches = append(s.Batches, BatchSize{batch.GetBatchSize(), d})
		}
	}
	slices.SortFunc(s.Batches, func(x, y BatchSize) int { return cmp.Compare(x.Size, y.Size) })
	return s
}

func diffDuration(was, is *pb.StatisticDuration) Counted {
	return Counted{grown(was.GetCount(), is.GetCount()), grown(was.GetNs(), is.GetNs())}
}

// grown returns how much a counter grew; one that fell was started anew.
func grown(was, is uint64) uint64 {
	if is < was {
		return is
	}
	return is - was
}

// add adds what the server says of another window.
func (s *ServerStats) add(o *ServerStats) {
	s.Version = o.Version
	s.Inferences += o.Inferences
	s.Executions += o.Executions
	s.MixedVersion = s.MixedVersion || o.MixedVersion
	for _, p := range []struct{ to, from *Counted }{
		{&s.Success, &o.Success},
		{&s.Fail, &o.Fail},
		{&s.Queue, &o.Queue},
		{&s.Input, &o.Input},
		{&s.Infer, &o.Infer},
		{&s.Output, &o.Output},
		{&s.CacheHit, &o.CacheHit},
		{&s.CacheMiss, &o.CacheMiss},
	} {
		p.to.Count += p.from.Count
		p.to.Ns += p.from.Ns
	}
	for _, b := range o.Batches {
		i, ok := slices.BinarySearchFunc(s.Batches, b.Size, func(x BatchSize, size uint64) int { return cmp.Compare(x.Size, size) })
		if !ok {
			s.Batches = slices.Insert(s.Batches, i, BatchSize{Size: b.Size})
		}
		s.Batches[i].Infer.Count += b.Infer.Count
		s.Batches[i].Infer.Ns += b.Infer.Ns
	}
}

// MeanBatch returns the rows of a mean execution; zero when there was none.
func (s *ServerStats) MeanBatch() float64 {
	if s.Executions == 0 {
		return 0
	}
	return float64(s.Inferences) / float64(s.Executions)
}
