package metrics

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"shoal/internal/engine"
	"shoal/internal/model/modelpb"
	"shoal/internal/reject"
)

func TestRejectionsHaveOnlySeriesOfModelsThatExist(t *testing.T) {
	tagged := idle("m", 1)
	tagged.Config = &modelpb.ModelConfig{MetricTags: map[string]string{"team": "a"}}
	rejects := reject.New(func(model string, version int64) (bool, int64) {
		if model == "m" && version == 1 {
			return true, 1
		}
		return model == "m" || model == "broken", reject.NoVersion
	}, slog.New(slog.DiscardHandler))
	m := Start(Options{Interval: time.Second, Log: slog.New(slog.DiscardHandler), Rejects: rejects}, &fixed{[]engine.Statistics{tagged}})
	t.Cleanup(m.Close)

	before := scrape(t, m, "shoal_requests_rejected_total")
	for i := range 100 {
		rejects.Request(reject.Request{Model: fmt.Sprint("x", i), Version: int64(i), Reason: reject.UnknownModel})
	}
	after := scrape(t, m, "shoal_requests_rejected_total")
	if len(after) != len(before) {
		t.Errorf("%d series after requests for models that do not exist, want %d as before", len(after), len(before))
	}
	rejects.Request(reject.Request{Protocol: reject.GRPC, Model: "m", Version: 1, Reason: reject.BadInput})
	rejects.Request(reject.Request{Model: "broken", Version: -1, Reason: reject.NotReady})
	rejects.Closed(reject.HTTP, reject.IdleTimeout, nil, "")
	want(t, scrape(t, m, "shoal_"),
		`shoal_requests_rejected_total{model="",protocol="http",reason="unknown_model",version=""} 100`,
		`shoal_requests_rejected_total{_team="a",model="m",protocol="grpc",reason="bad_input",version="1"} 1`,
		`shoal_requests_rejected_total{_team="a",model="m",protocol="http",reason="bad_input",version="1"} 0`,
		`shoal_requests_rejected_total{model="broken",protocol="http",reason="not_ready",version=""} 1`,
		`shoal_connections_closed_total{protocol="http",reason="idle_timeout"} 1`,
		`shoal_connections_closed_total{protocol="grpc",reason="max_connections"} 0`,
	)
	for _, line := range scrape(t, m, "shoal_requests_rejected_total") {
		if strings.Contains(line, `reason="none"`) || strings.Contains(line, `model="m",protocol="http",reason="unknown_model"`) {
			t.Errorf("%s cannot happen, want no series", line)
		}
	}
}
