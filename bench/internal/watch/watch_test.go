package watch

import (
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func TestSumAddsTheMetricsThatHaveTheLabels(t *testing.T) {
	const text = `# TYPE requests counter
requests{model="a",reason="x"} 1
requests{model="a",reason="y"} 2
requests{model="b",reason="x"} 4
# TYPE depth gauge
depth 8
`
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		family string
		labels []string
		want   float64
	}{
		{"requests", nil, 7},
		{"requests", []string{"model", "a"}, 3},
		{"requests", []string{"model", "a", "reason", "y"}, 2},
		{"requests", []string{"model", "c"}, 0},
		{"depth", nil, 8},
		{"absent", nil, 0},
	} {
		if got := Metrics(families).Sum(c.family, c.labels...); got != c.want {
			t.Errorf("%s %q: got %v, want %v", c.family, c.labels, got, c.want)
		}
	}
}
