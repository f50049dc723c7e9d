package metrics

import (
	"slices"
	"testing"
	"time"

	"shoal/internal/backend"
	"shoal/internal/engine"
)

func TestWorkersHaveMetricsOfTheirOwn(t *testing.T) {
	stats := idle("m", 1)
	stats.Workers = []backend.Worker{{Name: "m_0_0", Restarts: 2, Resident: 4096, Handler: 1500 * time.Millisecond}}
	lines := scrape(t, serve(t, &fixed{[]engine.Statistics{stats}}), "shoal_worker_")
	for _, want := range []string{
		`shoal_worker_restarts_total{instance="m_0_0",model="m",version="1"} 2`,
		`shoal_worker_resident_bytes{instance="m_0_0",model="m",version="1"} 4096`,
		`shoal_worker_handler_seconds_total{instance="m_0_0",model="m",version="1"} 1.5`,
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("got %v, want %s among them", lines, want)
		}
	}
}
