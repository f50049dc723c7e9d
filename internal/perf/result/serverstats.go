package result

import (
	"cmp"
	"slices"
	"time"
)

// A ServerStats is the increase of the server's statistics.
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

// PartStats are the statistics of a model that the measured one calls.
type PartStats struct {
	Model string `json:"model"`
	ServerStats
}

// addParts adds those of another window.
func addParts(parts, others []PartStats) []PartStats {
	for i := range others {
		o := &others[i]
		k := slices.IndexFunc(parts, func(p PartStats) bool { return p.Model == o.Model })
		if k < 0 {
			k, parts = len(parts), append(parts, PartStats{Model: o.Model})
		}
		parts[k].add(&o.ServerStats)
	}
	return parts
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

// A BatchSize is how often the model ran with this many rows.
type BatchSize struct {
	Size  uint64  `json:"size"`
	Infer Counted `json:"compute_infer"`
}

// add adds the statistics of another window.
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
