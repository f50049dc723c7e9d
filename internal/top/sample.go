package top

import "time"

// A Sample is the state of a server at one time.
type Sample struct {
	At     time.Time
	Models []Model // by name and version
	CPU    *float64
	GPUs   []GPU // by UUID
	// Rejected counts requests for models that do not exist, Closed connections
	// that a limit closed.
	Rejected, Closed Rejects
	// NoMetrics is why the metrics could not be read, nil if they were. Figures
	// that only the metrics have are then missing.
	NoMetrics error
}

// A Model is a version of a model in a Sample. Its counters start when it was
// loaded; a nil pointer means that the server did not report it.
type Model struct {
	Name, Version, State, Reason string

	Stats           *Stats
	Refused         *float64
	Rejected        Rejects
	Queue           *float64
	Instances, Busy *float64
	BusySeconds     *float64 // of all instances, since the version was loaded
	RequestTime     *Spread
	BatchesByReason map[string]float64
	QueueTime       *Spread
}

// Stats are the counters of the statistics extension.
type Stats struct {
	Success, SuccessNs, Fail float64
	QueueNs                  float64
	Inferences, Executions   float64
}

// find returns the model with that name and version, nil if it is not there.
func (s *Sample) find(name, version string) *Model {
	for i := range s.Models {
		if s.Models[i].Name == name && s.Models[i].Version == version {
			return &s.Models[i]
		}
	}
	return nil
}

// at returns the model with that name and version, adding it if need be. The
// pointer is valid until the next call.
func (s *Sample) at(name, version string) *Model {
	if m := s.find(name, version); m != nil {
		return m
	}
	s.Models = append(s.Models, Model{Name: name, Version: version})
	return &s.Models[len(s.Models)-1]
}
