package kservehttp

import (
	"strconv"

	"shoal/internal/engine"
	"shoal/internal/protocol/httpserver"
)

// stats answers with the counters of one version, one model or all.
func (h *handler) stats(x *httpserver.Exchange, rt route) error {
	list, err := h.engine.Statistics(rt.model, rt.version)
	if err != nil {
		return err
	}
	b := append([]byte(nil), `{"model_stats":[`...)
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendStatistics(b, &list[i])
	}
	reply(x, append(b, ']', '}'))
	return nil
}

func appendStatistics(b []byte, s *engine.Statistics) []byte {
	b = append(b, '{')
	b = appendMember(b, "name")
	b = appendQuoted(b, s.Name)
	b = appendMember(b, "version")
	b = append(b, '"')
	b = strconv.AppendInt(b, s.Version, 10)
	b = append(b, '"')
	b = appendCount(b, "last_inference", s.LastInference)
	b = appendCount(b, "inference_count", s.InferenceCount)
	b = appendCount(b, "execution_count", s.ExecutionCount)
	b = appendMember(b, "inference_stats")
	b = append(b, '{')
	b = appendDuration(b, "success", s.Success)
	b = appendDuration(b, "fail", s.Fail)
	b = appendDuration(b, "queue", s.Queue)
	b = appendCompute(b, s.ComputeInput, s.ComputeInfer, s.ComputeOutput)
	b = appendDuration(b, "cache_hit", s.CacheHit)
	b = appendDuration(b, "cache_miss", s.CacheMiss)
	b = append(b, `},"response_stats":{`...)
	for i := range s.Responses {
		b = appendResponses(b, i, &s.Responses[i])
	}
	b = append(b, `},"batch_stats":[`...)
	for i := range s.Batches {
		batch := &s.Batches[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		b = appendCount(b, "batch_size", uint64(batch.Size))
		b = appendCompute(b, batch.ComputeInput, batch.ComputeInfer, batch.ComputeOutput)
		b = append(b, '}')
	}
	b = append(b, `],"memory_usage":[`...)
	for i, g := range s.GPUs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"type":"GPU"`...)
		b = appendMember(b, "id")
		b = strconv.AppendInt(b, int64(g.ID), 10)
		b = appendMember(b, "byte_size")
		b = strconv.AppendInt(b, g.Bytes, 10)
		b = append(b, '}')
	}
	return append(b, `]}`...)
}

// appendResponses appends the counters of the responses with one index.
func appendResponses(b []byte, index int, r *engine.ResponseStatistics) []byte {
	b = appendMember(b, strconv.Itoa(index))
	b = append(b, '{')
	b = appendDuration(b, "compute_infer", r.ComputeInfer)
	b = appendDuration(b, "compute_output", r.ComputeOutput)
	b = appendDuration(b, "success", r.Success)
	b = appendDuration(b, "fail", r.Fail)
	b = appendDuration(b, "empty_response", r.EmptyResponse)
	b = appendDuration(b, "cancel", r.Cancel)
	return append(b, '}')
}

func appendCompute(b []byte, input, infer, output engine.Duration) []byte {
	b = appendDuration(b, "compute_input", input)
	b = appendDuration(b, "compute_infer", infer)
	return appendDuration(b, "compute_output", output)
}

func appendDuration(b []byte, name string, d engine.Duration) []byte {
	b = appendMember(b, name)
	b = append(b, '{')
	b = appendCount(b, "count", d.Count)
	b = appendCount(b, "ns", d.Ns)
	return append(b, '}')
}

func appendCount(b []byte, name string, n uint64) []byte {
	return strconv.AppendUint(appendMember(b, name), n, 10)
}
