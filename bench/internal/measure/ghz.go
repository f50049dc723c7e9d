package measure

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"shoal/bench/internal/peer"
)

// Ghz returns the gRPC load generator ghz at path. It reads the protocol from the
// folder protos. It stands on grpc-go, as many clients do.
func Ghz(path, protos string) Tool {
	return Tool{
		Name: "ghz", Path: path, Install: "go install github.com/bojand/ghz/cmd/ghz@v0.120.0 makes it; --ghz names another place",
		prepare: func(folder string, s *peer.Server, m peer.Model, callers int, duration time.Duration) ([]string, error) {
			message, err := m.GRPC()
			if err != nil {
				return nil, err
			}
			file, err := writeFile(folder, "message", message)
			return []string{
				"--insecure", "--disable-template-data", "--proto", filepath.Join(protos, "grpc_service.proto"), "--import-paths", protos,
				"--call", "inference.GRPCInferenceService.ModelInfer", "-B", file, "-c", fmt.Sprint(callers),
				"--connections", fmt.Sprint(connections(callers)), "-z", duration.String(), "--duration-stop", "wait", "-t", "60s", "-O", "json", s.GRPC,
			}, err
		},
		parse: parseGhz,
	}
}

// connections returns over how many connections so many callers go: as many as
// our own generator has.
func connections(callers int) int {
	switch {
	case callers <= 4:
		return 1
	case callers <= 16:
		return 2
	}
	return 4
}

func parseGhz(output []byte) (Outcome, error) {
	var f struct {
		Count   int64            `json:"count"`
		RPS     float64          `json:"rps"`
		Status  map[string]int64 `json:"statusCodeDistribution"`
		Latency []struct {
			Percentage int           `json:"percentage"`
			Latency    time.Duration `json:"latency"` // nanoseconds
		} `json:"latencyDistribution"`
	}
	if err := json.Unmarshal(output, &f); err != nil {
		return Outcome{}, fmt.Errorf("%w: %.300s", err, output)
	}
	if f.Count == 0 || len(f.Latency) == 0 {
		return Outcome{}, ErrNoAnswer
	}
	if good := f.Status["OK"]; good < f.Count {
		return Outcome{}, fmt.Errorf("%d of %d requests failed: %v", f.Count-good, f.Count, f.Status)
	}
	o := Outcome{Requests: f.Count, Throughput: f.RPS}
	for _, l := range f.Latency {
		switch l.Percentage {
		case 50:
			o.P50 = l.Latency
		case 95:
			o.P95 = l.Latency
		case 99:
			o.P99 = l.Latency
		}
	}
	return o, nil
}
