package perf

import (
	"fmt"
	"testing"

	pb "shoal/internal/protocol/kservegrpc/inferencepb"
)

func stat(version string, n, ns uint64) *pb.ModelStatistics {
	d := &pb.StatisticDuration{Count: n, Ns: ns}
	return &pb.ModelStatistics{Version: version, InferenceCount: 2 * n, ExecutionCount: n, InferenceStats: &pb.InferStatistics{Success: d, Queue: d}}
}

func TestStatisticsAreTakenOfTheVersionThatWasUsed(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after []*pb.ModelStatistics
		want          string
	}{
		{"one version", []*pb.ModelStatistics{stat("1", 5, 100)}, []*pb.ModelStatistics{stat("1", 8, 160)}, "1 3 60 6 false"},
		{"one of two", []*pb.ModelStatistics{stat("1", 5, 100), stat("2", 5, 100)}, []*pb.ModelStatistics{stat("1", 8, 160), stat("2", 5, 100)}, "1 3 60 6 false"},
		{"the newest of two, by number", []*pb.ModelStatistics{stat("9", 5, 100), stat("10", 5, 100)}, []*pb.ModelStatistics{stat("9", 8, 160), stat("10", 6, 110)}, "10 1 10 2 true"},
		{"new since then", nil, []*pb.ModelStatistics{stat("1", 8, 160)}, "1 8 160 16 false"},
		{"a server that was started again", []*pb.ModelStatistics{stat("1", 50, 1000)}, []*pb.ModelStatistics{stat("1", 8, 160)}, "1 8 160 16 false"},
	} {
		s := diffStats(c.before, c.after)
		if got := fmt.Sprintf("%s %d %d %d %v", s.Version, s.Success.Count, s.Success.Ns, s.Inferences, s.MixedVersion); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	if s := diffStats([]*pb.ModelStatistics{stat("1", 5, 100)}, []*pb.ModelStatistics{stat("1", 5, 100)}); s != nil {
		t.Errorf("nothing used: got %+v, want none", s)
	}
}
