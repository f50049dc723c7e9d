package page

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"

	"shoal/internal/load"
	"shoal/internal/perf/report"
	"shoal/internal/perf/result"
)

// maxEmbedded bounds the compressed result within the page, so that the page
// can be sent by mail. The --json file has no bound.
const maxEmbedded = 260 << 10

// embedCSV returns the CSV as a data URL.
func embedCSV(r *result.Result) (markup, error) {
	var b bytes.Buffer
	if err := report.WriteCSV(&b, r, true); err != nil {
		return "", err
	}
	return dataURL("text/csv", b.Bytes()), nil
}

// embedJSON returns the compressed result as a data URL, and what had to be
// left out.
func embedJSON(r *result.Result) (markup, string, error) {
	var last []byte
	note := ""
	for _, step := range []struct {
		thin func(*result.Result) *result.Result
		note string
	}{
		{func(r *result.Result) *result.Result { return r }, ""},
		{withoutHistograms, "Without the histograms of single windows, for size; --json writes everything."},
		{withoutTimeline, "Without the histograms of single windows and the timeline, for size; --json writes everything."},
		{withoutWindows, "Without the windows and the timeline, for size; --json writes everything."},
	} {
		data, err := compressed(step.thin(r))
		if err != nil {
			return "", "", err
		}
		last, note = data, step.note
		if len(data) <= maxEmbedded {
			break
		}
	}
	if len(last) > maxEmbedded {
		return "", "The result is too large for this page; --json writes it.", nil
	}
	return dataURL("application/gzip", last), note, nil
}

func compressed(r *result.Result) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	e := json.NewEncoder(z)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, err
	}
	err := z.Close()
	return b.Bytes(), err
}

func dataURL(kind string, data []byte) markup {
	return markup("data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(data)) // contains no user input
}

// withoutHistograms returns a copy of a result whose windows have empty
// histograms; those of the levels stay.
func withoutHistograms(r *result.Result) *result.Result {
	return thinned(r, func(l *result.Level) {
		windows := make([]result.Window, len(l.Windows))
		for i, w := range l.Windows {
			w.Latency, w.FromSend, w.SendLag = &load.Histogram{}, nil, nil
			windows[i] = w
		}
		l.Windows = windows
	})
}

func withoutTimeline(r *result.Result) *result.Result {
	return thinned(withoutHistograms(r), func(l *result.Level) { l.Timeline = nil })
}

func withoutWindows(r *result.Result) *result.Result {
	return thinned(r, func(l *result.Level) { l.Timeline, l.Windows = nil, []result.Window{} })
}

// thinned returns a copy of a result with changed levels.
func thinned(r *result.Result, change func(*result.Level)) *result.Result {
	c := *r
	c.Levels = make([]result.Level, len(r.Levels))
	for i, l := range r.Levels {
		change(&l)
		c.Levels[i] = l
	}
	return &c
}
