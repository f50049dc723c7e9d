package ort

import "testing"

func TestLimitsSpinning(t *testing.T) {
	for version, want := range map[string]bool{"1.19.2": false, "1.25.1": false, "1.26.0": true, "1.30.0": true, "2.0.0": true} {
		if got := (&Library{version: version}).LimitsSpinning(); got != want {
			t.Errorf("%s: got %v, want %v", version, got, want)
		}
	}
}
