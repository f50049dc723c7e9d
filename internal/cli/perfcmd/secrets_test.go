package perfcmd

import (
	"strings"
	"testing"
)

func TestReportsDoNotTellHeaders(t *testing.T) {
	for in, want := range map[string]string{
		"perf -m x -b 2":                       "perf -m x -b 2",
		"perf -H Authorization:secret -m x":    "perf -H Authorization:*** -m x",
		"perf -HAuthorization:secret":          "perf -HAuthorization:***",
		"perf --header Authorization:secret":   "perf --header Authorization:***",
		"perf --header=Authorization:secret":   "perf --header=Authorization:***",
		"perf --head Authorization:secret -v":  "perf --head Authorization:*** -v",
		"perf --header secret --help --html=a": "perf --header *** --help --html=a",
		"perf --shape=a:1,2 -H":                "perf --shape=a:1,2 -H",
	} {
		if got := strings.Join(withoutSecrets(strings.Fields(in)), " "); got != want {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
}
