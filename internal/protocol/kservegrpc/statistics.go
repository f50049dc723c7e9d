package kservegrpc

import (
	"context"
	"strconv"

	"shoal/internal/engine"
	pb "shoal/internal/protocol/kservegrpc/inferencepb"
)

// ModelStatistics returns the counters of a model, or of all.
func (s *service) ModelStatistics(_ context.Context, req *pb.ModelStatisticsRequest) (*pb.ModelStatisticsResponse, error) {
	n, err := parseVersion(req.GetVersion())
	if err != nil {
		return nil, err
	}
	list, err := s.server.engine.Statistics(req.GetName(), n)
	if err != nil {
		return nil, err
	}
	resp := &pb.ModelStatisticsResponse{ModelStats: make([]*pb.ModelStatistics, len(list))}
	for i := range list {
		resp.ModelStats[i] = statistics(&list[i])
	}
	return resp, nil
}

func statistics(st *engine.Statistics) *pb.ModelStatistics {
	out := &pb.ModelStatistics{
		Name:           st.Name,
		Version:        strconv.FormatInt(st.Version, 10),
		LastInference:  st.LastInference,
		InferenceCount: st.InferenceCount,
		ExecutionCount: st.ExecutionCount,
		InferenceStats: &pb.InferStatistics{
			Success:       duration(st.Success),
			Fail:          duration(st.Fail),
			Queue:         duration(st.Queue),
			ComputeInput:  duration(st.ComputeInput),
			ComputeInfer:  duration(st.ComputeInfer),
			ComputeOutput: duration(st.ComputeOutput),
			CacheHit:      duration(st.CacheHit),
			CacheMiss:     duration(st.CacheMiss),
		},
	}
	for _, b := range st.Batches {
		out.BatchStats = append(out.BatchStats, &pb.InferBatchStatistics{
			BatchSize:     uint64(b.Size),
			ComputeInput:  duration(b.ComputeInput),
			ComputeInfer:  duration(b.ComputeInfer),
			ComputeOutput: duration(b.ComputeOutput),
		})
	}
	for _, g := range st.GPUs {
		out.MemoryUsage = append(out.MemoryUsage, &pb.MemoryUsage{Type: "GPU", Id: int64(g.ID), ByteSize: uint64(g.Bytes)})
	}
	for i := range st.Responses {
		if out.ResponseStats == nil {
			out.ResponseStats = make(map[string]*pb.InferResponseStatistics, len(st.Responses))
		}
		r := &st.Responses[i]
		out.ResponseStats[strconv.Itoa(i)] = &pb.InferResponseStatistics{
			ComputeInfer:  duration(r.ComputeInfer),
			ComputeOutput: duration(r.ComputeOutput),
			Success:       duration(r.Success),
			Fail:          duration(r.Fail),
			EmptyResponse: duration(r.EmptyResponse),
			Cancel:        duration(r.Cancel),
		}
	}
	return out
}

func duration(d engine.Duration) *pb.StatisticDuration {
	return &pb.StatisticDuration{Count: d.Count, Ns: d.Ns}
}
