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
	Inference  struct {
		Queue struct {
			Count uint64 `json:"count"`
			Ns    uint64 `json:"ns"`
		} `json:"queue"`
	} `json:"inference_stats"`
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
		sum.Inference.Queue.Count += s.Inference.Queue.Count
		sum.Inference.Queue.Ns += s.Inference.Queue.Ns
	}
	return sum, nil
}

// since returns the mean batch and the mean time in the queue, in microseconds,
// of what happened after an earlier reading; zero when nothing did.
func (s stats) since(before stats) (meanBatch, queue float64) {
	if n := s.Executions - before.Executions; n > 0 {
		meanBatch = float64(s.Inferences-before.Inferences) / float64(n)
	}
	if n := s.Inference.Queue.Count - before.Inference.Queue.Count; n > 0 {
		queue = float64(s.Inference.Queue.Ns-before.Inference.Queue.Ns) / float64(n) / 1e3
	}
	return meanBatch, queue
}
