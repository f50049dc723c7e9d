package measure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"shoal/bench/internal/peer"
	"shoal/internal/client"
)

// Wrk returns the HTTP load generator wrk at path.
func Wrk(path string) Tool {
	return Tool{
		Name: "wrk", Path: path, Install: "Debian and Ubuntu have it as the package wrk, Homebrew as wrk; --wrk names another place",
		prepare: prepareWrk, parse: parseWrk,
	}
}

// wrkMark stands in front of the figures that the script prints.
const wrkMark = "figures: "

// wrkDone is the part of the script that prints the figures; times are in
// microseconds.
const wrkDone = `
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format("` + wrkMark + `{\"requests\":%d,\"duration\":%d,\"errors\":%d,\"p50\":%d,\"p95\":%d,\"p99\":%d}\n",
    summary.requests, summary.duration, e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50), latency:percentile(95), latency:percentile(99)))
end
`

// prepareWrk writes the script and the body that it sends. One thread of wrk is
// enough for the callers here, and leaves the server the other cores.
func prepareWrk(folder string, s *peer.Server, m peer.Model, callers int, duration time.Duration) ([]string, error) {
	url, header, body, err := m.HTTP(client.Binary)
	if err != nil {
		return nil, err
	}
	path, err := writeFile(folder, "body", body)
	if err != nil {
		return nil, err
	}
	var script strings.Builder
	fmt.Fprintf(&script, "local f = io.open(%q, \"rb\")\nwrk.body = f:read(\"*all\")\nf:close()\nwrk.method = \"POST\"\n", path)
	for _, h := range header {
		fmt.Fprintf(&script, "wrk.headers[%q] = %q\n", h.Name, h.Value)
	}
	script.WriteString(wrkDone)
	file, err := writeFile(folder, "infer.lua", []byte(script.String()))
	seconds := max(1, int(duration.Round(time.Second)/time.Second)) // wrk has no fractions
	return []string{
		"-t", "1", "-c", fmt.Sprint(callers), "-d", fmt.Sprintf("%ds", seconds), "--timeout", "60s", "-s", file,
		"http://" + s.HTTP + url,
	}, err
}

func parseWrk(output []byte) (Outcome, error) {
	_, figures, found := bytes.Cut(output, []byte(wrkMark))
	if !found {
		return Outcome{}, fmt.Errorf("no line %q in what it printed: %.500s", wrkMark, output)
	}
	var f struct{ Requests, Duration, Errors, P50, P95, P99 int64 }
	if err := json.Unmarshal(figures, &f); err != nil {
		return Outcome{}, err
	}
	if f.Errors > 0 {
		return Outcome{}, fmt.Errorf("%d of %d requests failed", f.Errors, f.Errors+f.Requests)
	}
	if f.Requests == 0 || f.Duration == 0 {
		return Outcome{}, ErrNoAnswer
	}
	at := func(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
	return Outcome{
		Requests: f.Requests, Throughput: float64(f.Requests) / at(f.Duration).Seconds(),
		P50: at(f.P50), P95: at(f.P95), P99: at(f.P99),
	}, nil
}
