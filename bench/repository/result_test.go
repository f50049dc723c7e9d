package main

import (
	"strings"
	"testing"
)

func TestMissedNamesEachFloor(t *testing.T) {
	good := results{
		Loads: []loading{{Server: "shoal", ReadyMS: 100}, {Server: "triton", ReadyMS: 120}},
		Index: answers{P99MS: 49}, Metrics: answers{P99MS: 49}, Poll: poll{SharePercent: 0.9}, Request: request{Ratio: 1.04},
	}
	if got := good.missed(); len(got) != 0 {
		t.Errorf("got %q, want nothing missed", got)
	}
	bad := results{
		Loads: []loading{{Server: "shoal", ReadyMS: 130}, {Server: "triton", ReadyMS: 120}},
		Index: answers{P99MS: 51}, Metrics: answers{P99MS: 52}, Poll: poll{SharePercent: 1.1}, Request: request{Ratio: 1.06},
	}
	got := strings.Join(bad.missed(), "\n")
	for _, want := range []string{"51.00", "52.00", "1.10", "1.06"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in:\n%s", want, got)
		}
	}
	if page := bad.page(); strings.Count(page, "MISSED") != 4 {
		t.Errorf("got\n%s\nwant four marks", page)
	}
}
