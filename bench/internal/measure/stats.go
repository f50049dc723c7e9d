package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// stats are a model's counters since the server started, as the statistics
// extension of the protocol gives them: the same on both servers.
type stats struct {
	Inferences uint64 `json:"inference_count"` // rows
	Executions uint64 `json:"execution_count"`
	Last       uint64 `json:"last_inference"` // when the newest batch ended, in milliseconds
	Inference  struct {
		Queue duration `json:"queue"`
		Infer duration `json:"compute_infer"`
	} `json:"inference_stats"`
}

// A duration is a sum of times.
type duration struct {
	Count uint64 `json:"count"`
	Ns    uint64 `json:"ns"`
}

func (d *duration) add(other duration) {
	d.Count += other.Count
	d.Ns += other.Ns
}

// since returns the mean in microseconds of what happened after an earlier
// reading.
func (d duration) since(before duration) float64 {
	if n := d.Count - before.Count; n > 0 {
		return float64(d.Ns-before.Ns) / float64(n) / 1e3
	}
	return 0
}

// readStats asks the server for the counters of a model, all versions together.
func readStats(ctx context.Context, address, model string) (stats, error) {
	url := "http://" + address + "/v2/models/" + model + "/stats"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return stats{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return stats{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return stats{}, err
	}
	if response.StatusCode != http.StatusOK {
		return stats{}, fmt.Errorf("%s: %s: %.300s", url, response.Status, body)
	}
	return parseStats(body)
}

func parseStats(body []byte) (stats, error) {
	var answer struct {
		Models []stats `json:"model_stats"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return stats{}, fmt.Errorf("statistics: %w", err)
	}
	var sum stats
	for _, s := range answer.Models {
		sum.Inferences += s.Inferences
		sum.Executions += s.Executions
		sum.Last = max(sum.Last, s.Last)
		sum.Inference.Queue.add(s.Inference.Queue)
		sum.Inference.Infer.add(s.Inference.Infer)
	}
	return sum, nil
}

// rate returns how many rows were answered in a second after an earlier reading, from the
// end of a batch to the end of another: with ten batches between the readings, one more
// or less would change it by a tenth. It is 0 if no batch ended since, or none before.
func (s stats) rate(before stats) float64 {
	if before.Last == 0 || s.Last <= before.Last {
		return 0
	}
	return 1e3 * float64(s.Inferences-before.Inferences) / float64(s.Last-before.Last)
}

// since returns the mean batch and the mean times in the queue and in the model,
// in microseconds, of what happened after an earlier reading; zero when nothing
// did.
func (s stats) since(before stats) (meanBatch, queue, infer float64) {
	if n := s.Executions - before.Executions; n > 0 {
		meanBatch = float64(s.Inferences-before.Inferences) / float64(n)
	}
	return meanBatch, s.Inference.Queue.since(before.Inference.Queue), s.Inference.Infer.since(before.Inference.Infer)
}
