package top

import (
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// shown returns what the terminal shows, without colours.
func shown(v *view) string { return ansi.Strip(v.content()) }

// newView returns a view of so many models on a terminal of that size.
func newView(models, width, height int) *view {
	v := &view{servers: 1, interval: time.Second}
	v.Update(tea.WindowSizeMsg{Width: width, Height: height})
	if models > 0 {
		v.Update(reportOfModels(models))
	}
	return v
}

func reportOfModels(n int) reportMsg {
	var rows []Row
	for i := range n {
		rows = append(rows, Row{Model: fmt.Sprintf("m%02d", i), Version: "1", State: "READY", Requests: new(float64(i)), Queue: new(0.0)})
	}
	return reportMsg(*reportOf(rows))
}

func press(v *view, keys ...string) tea.Cmd {
	var cmd tea.Cmd
	for _, k := range keys {
		cmd = v.key(k)
	}
	return cmd
}

// models returns the models on the screen, in their order.
func models(v *view) string {
	var names []string
	for _, line := range strings.Split(shown(v), "\n") {
		if strings.HasPrefix(line, "m0") {
			names = append(names, strings.Fields(line)[0])
		}
	}
	return strings.Join(names, " ")
}

func TestViewSortsAndScrolls(t *testing.T) {
	for _, c := range []struct {
		name string
		keys []string
		want string
	}{
		{"as it starts", nil, "m00 m01 m02 m03"},
		{"by rate", []string{"right", "right", "right"}, "m05 m04 m03 m02"},
		{"by rate, reversed", []string{"right", "right", "right", "r"}, "m00 m01 m02 m03"},
		{"back to the name", []string{"right", "left"}, "m00 m01 m02 m03"},
		{"around to the last column", []string{"left"}, "m00 m01 m02 m03"},
		{"a line down", []string{"down"}, "m01 m02 m03 m04"},
		{"not beyond the end", []string{"pgdown", "pgdown", "down"}, "m02 m03 m04 m05"},
		{"not beyond the beginning", []string{"down", "pgup", "up"}, "m00 m01 m02 m03"},
	} {
		v := newView(6, 120, framing+4)
		press(v, c.keys...)
		if got := models(v); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
		if lines := strings.Count(shown(v), "\n") + 1; lines > framing+4 {
			t.Errorf("%s: got %d lines, want %d at most", c.name, lines, framing+4)
		}
	}
}

func TestViewShowsFaultsAndRecovers(t *testing.T) {
	v := newView(2, 60, 20)
	fault := "cannot reach http://localhost:8000/v2/models/stats: connection refused; is a server running there?"
	v.Update(reportMsg(Report{Servers: []Server{{URL: "http://localhost:8000", Error: fault}}}))
	text := shown(v)
	if got := strings.Join(strings.Fields(text), " "); !strings.Contains(got, fault) || !strings.Contains(got, "trying again every 1s") || strings.Contains(got, "m00") {
		t.Errorf("got\n%s\nwant all of the fault, that it is tried again, and no models", text)
	}
	for _, line := range strings.Split(text, "\n") {
		if ansi.StringWidth(line) > 60 {
			t.Errorf("got a line of %d columns, want 60 at most: %s", ansi.StringWidth(line), line)
		}
	}
	v.Update(reportOfModels(2))
	if got := models(v); got != "m00 m01" {
		t.Errorf("back again: got %q, want both models", got)
	}
}

func TestViewCannotBeSteeredByNames(t *testing.T) {
	v := newView(0, 200, 20)
	r := reportOf([]Row{{Model: "a\x1b]0;x\x07b", State: "UNAVAILABLE", Reason: "no\nway\x1b[2J"}})
	v.Update(reportMsg(*r))
	if text := v.content(); strings.Contains(text, "\x1b]0") || strings.Contains(text, "\x1b[2J") || strings.Contains(text, "no\nway") {
		t.Errorf("got %q, want the control characters gone", text)
	}
}

func TestViewPausesHelpsAndLeaves(t *testing.T) {
	v := newView(1, 120, 20)
	press(v, "space")
	v.Update(reportOfModels(3))
	if got := models(v); got != "m00" || !strings.Contains(shown(v), "paused") {
		t.Errorf("paused: got %q, want what was there", got)
	}
	press(v, "space")
	if _, cmd := v.Update(reportOfModels(3)); models(v) != "m00 m01 m02" || cmd == nil {
		t.Errorf("going on: got %q, want three models and another reading to come", models(v))
	}
	press(v, "?")
	if got := shown(v); !strings.Contains(got, "requests answered well") {
		t.Errorf("help: got\n%s\nwant the columns explained", got)
	}
	for _, key := range []string{"q", "ctrl+c", "esc"} {
		if cmd := press(v, key); cmd == nil || cmd() != (tea.QuitMsg{}) {
			t.Errorf("%s: want it to leave", key)
		}
	}
	polled := false
	v.poll = func() tea.Msg { polled = true; return nil }
	if _, cmd := v.Update(tickMsg{}); cmd == nil || cmd() != nil || !polled {
		t.Error("a tick: want another reading")
	}
}

func TestNarrowTerminalKeepsWhatMatters(t *testing.T) {
	v := newView(0, 80, 20)
	r := reportOf([]Row{{
		Model: "resnet50_fp16", Version: "12", State: "READY", Requests: new(12345.0), Rows: new(123456.0), Mean: new(0.01234), P50: new(0.01234),
		P99: new(0.1234), Batch: new(12.3), Queue: new(1234.0), Busy: new(8.0), Instances: new(8.0), Failures: new(0.0), Refused: new(0.0),
		Rejected: new(123.0), RejectedByReason: Rejects{"bad_input": 120, "malformed": 3},
	}})
	r.Servers[0].Closed = Rejects{"idle_timeout": 0.5}
	v.Update(reportMsg(*r))
	press(v, "right", "right", "right", "right", "right") // sorted by ROWS/S, the first that would go
	text := shown(v)
	for _, want := range []string{"ROWS/S", "REJ/S", "   123\n", "REJECTED/S  bad_input 120  malformed 3.0", "CLOSED/S    idle_timeout 0.5"} {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %q in it", text, want)
		}
	}
	press(v, "?")
	for _, line := range append(strings.Split(text, "\n"), strings.Split(shown(v), "\n")...) {
		if ansi.StringWidth(line) > 80 {
			t.Errorf("got a line of %d columns, want 80 at most: %s", ansi.StringWidth(line), line)
		}
	}
	for _, line := range helpText {
		if len(line) > 80 {
			t.Errorf("the help has a line of %d columns, want 80 at most: %s", len(line), line)
		}
	}
	if head := v.columns(); len(head) != len(modelColumns)+1 {
		t.Errorf("got %d columns to sort by, want all %d and the trend", len(head), len(modelColumns))
	}
	press(v, "?", "left", "left") // sorted by REQ/S
	if text := shown(v); !strings.Contains(text, "TREND") || !strings.Contains(text, "BATCH") || strings.Contains(text, "ROWS/S") {
		t.Errorf("got\n%s\nwant the trend and batches, not rows", text)
	}
}

func TestTrendFollowsTheLastIntervals(t *testing.T) {
	v := newView(0, 200, 20)
	for i := range trendLength + 4 {
		v.Update(reportMsg(*reportOf([]Row{{Model: "m", Version: "1", Requests: new(float64(i))}})))
	}
	trend := v.report.Models[0].trend
	if len(trend) != trendLength || trend[0] != 4 || trend[trendLength-1] != trendLength+3 || !strings.Contains(shown(v), "\u2588") {
		t.Errorf("got %v, want the last %d rates", trend, trendLength)
	}
	v.Update(reportMsg(*reportOf([]Row{{Model: "other", Version: "1", Requests: new(1.0)}})))
	if len(v.trends) != 2 { // of the model and of the total
		t.Errorf("got %d trends, want those of models that are there", len(v.trends))
	}
}

func TestViewMarksWhatNeedsALook(t *testing.T) {
	v := newView(0, 0, 0)
	full := Row{State: "READY", Queue: new(3.0), Busy: new(2.0), Instances: new(2.0)}
	for _, c := range []struct {
		name string
		row  Row
		want string
	}{
		{"well", Row{State: "READY", Queue: new(3.0), Busy: new(1.0), Instances: new(2.0), Failures: new(0.0)}, ""},
		{"failing", Row{State: "READY", Refused: new(0.5)}, "\x1b[31m"},
		{"rejecting", Row{State: "READY", Failures: new(0.0), Rejected: new(0.5)}, "\x1b[33m"},
		{"not ready", Row{State: "LOADING"}, "\x1b[33m"},
		{"saturated", full, "\x1b[33m"},
	} {
		got := v.line(tableLine{cells: []string{"x"}, row: &c.row})
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "x" {
			t.Errorf("%s: got %q, want it to begin %q", c.name, got, c.want)
		}
	}
}
