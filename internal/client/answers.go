package client

import (
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "shoal/internal/protocol/kservegrpc/inferencepb"
)

// parse reads a JSON answer into its message. Unknown fields are ignored.
func parse(body []byte, m proto.Message) error {
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(body, m)
}

// ParseStatistics reads the JSON of a server's or a model's statistics.
func ParseStatistics(body []byte) ([]*pb.ModelStatistics, error) {
	m := &pb.ModelStatisticsResponse{}
	err := parse(body, m)
	return m.GetModelStats(), err
}

// ParseIndex reads the JSON of the repository index, which has the message's
// list without its name.
func ParseIndex(body []byte) ([]*pb.RepositoryIndexResponse_ModelIndex, error) {
	m := &pb.RepositoryIndexResponse{}
	err := parse([]byte(`{"models":`+string(body)+`}`), m)
	return m.GetModels(), err
}

// CompareVersions orders versions as numbers: 2 is before 10.
func CompareVersions(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}
