package modelstore

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// A snapshot is what TorchServe writes of its models into a file, and reads when it
// starts.
type snapshot struct {
	Name    string                              `json:"name"`
	Count   int                                 `json:"modelCount"`
	Created int64                               `json:"created"`
	Models  map[string]map[string]snapshotOfOne `json:"models"`
}

type snapshotOfOne struct {
	Default         bool   `json:"defaultVersion"`
	Archive         string `json:"marName"`
	Min             int    `json:"minWorkers"`
	Max             int    `json:"maxWorkers"`
	Batch           int    `json:"batchSize"`
	Delay           int    `json:"maxBatchDelay"`
	ResponseTimeout int    `json:"responseTimeout"`
	StartupTimeout  int    `json:"startupTimeout"`
	Runtime         string `json:"runtimeType"`
}

// Snapshot returns the text of a snapshot.
func (s *Store) Snapshot(name string, now time.Time) string {
	out := snapshot{Name: name, Created: now.UnixMilli(), Models: map[string]map[string]snapshotOfOne{}}
	for _, m := range s.sorted() {
		versions := map[string]snapshotOfOne{}
		for n, v := range m.versions {
			st := v.state()
			versions[n] = snapshotOfOne{
				n == m.def, v.url, st.min, st.max, v.batchSize, v.batchDelay,
				int(v.timeouts.response / time.Second), int(v.timeouts.startup / time.Second), v.runtime,
			}
			out.Count++
		}
		out.Models[m.name] = versions
	}
	return string(s.Encode(out))
}

// ParseSnapshot returns what a snapshot says to register, default versions first.
func ParseSnapshot(text string) ([]Registration, error) {
	var in snapshot
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return nil, fmt.Errorf("the snapshot is not as it was written: %w", err)
	}
	var first, others []Registration
	for _, name := range slices.Sorted(maps.Keys(in.Models)) {
		for _, version := range slices.Sorted(maps.Keys(in.Models[name])) {
			m := in.Models[name][version]
			response, startup := time.Duration(m.ResponseTimeout)*time.Second, time.Duration(m.StartupTimeout)*time.Second
			r := Registration{
				URL: m.Archive, HasURL: true, Name: name, Runtime: m.Runtime, BatchSize: &m.Batch, BatchDelay: &m.Delay,
				ResponseTimeout: &response, StartupTimeout: &startup, InitialWorkers: &m.Min, MaxWorkers: m.Max, Synchronous: true, Startup: true,
			}
			if m.Default {
				first = append(first, r)
			} else {
				others = append(others, r)
			}
		}
	}
	return append(first, others...), nil
}
