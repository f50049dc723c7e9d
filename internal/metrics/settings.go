package metrics

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Settings are the settings of --metrics-config. The zero value is the default,
// except for Quantiles.
type Settings struct {
	NoCounters    bool // counter_latencies=false
	FirstResponse bool // histogram_latencies=true
	Summaries     bool // summary_latencies=true
	Quantiles     []float64
}

var defaultQuantiles = []float64{0.5, 0.9, 0.95, 0.99, 0.999}

// ParseSettings reads settings of the form name=value. It reports every error.
func ParseSettings(list []string) (Settings, error) {
	s := Settings{Quantiles: defaultQuantiles}
	var errs []error
	for _, text := range list {
		name, value, ok := strings.Cut(strings.TrimPrefix(text, ","), "=")
		if !ok {
			errs = append(errs, fmt.Errorf("%q has no value, want name=value", text))
			continue
		}
		if err := s.set(name, value); err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", text, err))
		}
	}
	return s, errors.Join(errs...)
}

func (s *Settings) set(name, value string) error {
	if name == "summary_quantiles" {
		var err error
		s.Quantiles, err = parseQuantiles(value)
		return err
	}
	on := value == "true"
	switch name {
	case "counter_latencies":
		s.NoCounters = !on
	case "histogram_latencies":
		s.FirstResponse = on
	case "summary_latencies":
		s.Summaries = on
	default:
		return errors.New("there are counter_latencies, histogram_latencies, summary_latencies and summary_quantiles")
	}
	if !on && value != "false" {
		return errors.New("want true or false")
	}
	return nil
}

// parseQuantiles reads pairs of a quantile and its allowed error. The error is
// ignored: our quantiles are within 2 % of their value.
func parseQuantiles(text string) ([]float64, error) {
	var list []float64
	for _, pair := range strings.Split(text, ",") {
		quantile, _, ok := strings.Cut(pair, ":")
		q, err := strconv.ParseFloat(quantile, 64)
		if !ok || err != nil || !(q >= 0 && q <= 1) {
			return nil, fmt.Errorf("%q is not quantile:error with a quantile from 0 to 1, such as 0.99:0.001", pair)
		}
		list = append(list, q)
	}
	return list, nil
}
