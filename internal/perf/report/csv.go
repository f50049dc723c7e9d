package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"shoal/internal/perf/result"
)

// WriteCSV writes the levels of a result as perf_analyzer does, by rising
// throughput and with times in microseconds: Model Analyzer and scripts find
// the columns by their names. Verbose adds columns.
func WriteCSV(out io.Writer, r *result.Result, verbose bool) error {
	levels := r.Reported()
	slices.SortStableFunc(levels, func(a, b *result.Level) int { return cmp.Compare(a.Merged.Throughput(), b.Merged.Throughput()) })
	sheet := sheet{plan: &r.Plan, verbose: verbose, name: "Concurrency"}
	for _, l := range levels {
		sheet.server = sheet.server || l.Merged.Server != nil
		sheet.responses = sheet.responses || l.Merged.Responses > l.Merged.Requests
		sheet.gpu = sheet.gpu || l.Merged.GPU != nil
		if s := l.Merged.Server; s != nil {
			sheet.cache = sheet.cache || s.CacheHit.Count+s.CacheMiss.Count > 0
		}
		sheet.name = l.Load.Name()
	}
	b := bufio.NewWriter(out)
	fmt.Fprintln(b, strings.Join(sheet.header(), ","))
	for _, l := range levels {
		fmt.Fprintln(b, strings.Join(sheet.row(l), ","))
	}
	return b.Flush()
}

// Parts returns the models that the measured one called.
func Parts(r *result.Result) (list []result.PartStats) {
	for _, l := range r.Reported() {
		for _, p := range l.Merged.Parts {
			if !slices.ContainsFunc(list, func(o result.PartStats) bool { return o.Model == p.Model }) {
				list = append(list, p)
			}
		}
	}
	return list
}

// WritePartCSV writes what one of those models did at each level. Of it the client
// sees nothing, so that its columns are zero, as perf_analyzer has them.
func WritePartCSV(out io.Writer, r *result.Result, model string) error {
	b := bufio.NewWriter(out)
	for i, l := range r.Reported() {
		if i == 0 {
			fmt.Fprintln(b, l.Load.Name()+",Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,Server Compute Infer,Server Compute Output,Client Recv")
		}
		k := slices.IndexFunc(l.Merged.Parts, func(p result.PartStats) bool { return p.Model == model })
		if k < 0 {
			continue
		}
		p := &l.Merged.Parts[k]
		queue, in, infer, answer := p.Queue.Mean(), p.Input.Mean(), p.Infer.Mean(), p.Output.Mean()
		fmt.Fprintln(b, strings.Join([]string{
			result.Number(l.Load.Value), result.Number(result.PerSecond(int64(p.Inferences), l.Merged.Duration)), "0",
			cell(max(0, p.Success.Mean()-queue-in-infer-answer)), cell(queue), cell(in), cell(infer), cell(answer), "0",
		}, ","))
	}
	return b.Flush()
}

// A sheet is the set of columns.
type sheet struct {
	plan                                   *result.Plan
	name                                   string
	verbose, server, cache, responses, gpu bool
}

func (s *sheet) header() []string {
	list := []string{s.name, "Inferences/Second"}
	if s.responses {
		list = append(list, "Response Throughput")
	}
	list = append(list, "Client Send")
	if s.server {
		list = append(list, "Network+Server Send/Recv", "Server Queue", "Server Compute Input", "Server Compute Infer", "Server Compute Output")
		if s.cache {
			list = append(list, "Server Cache Hit", "Server Cache Miss")
		}
	}
	list = append(list, "Client Recv")
	for _, p := range result.Percentiles(s.plan) {
		list = append(list, fmt.Sprintf("p%d latency", p))
	}
	if s.verbose {
		if s.plan.Percentile == 0 {
			list = append(list, "Avg latency")
		}
		list = append(list, "request/response", "response wait")
		if s.gpu {
			list = append(list, "Avg GPU Utilization", "Avg GPU Power Usage", "Max GPU Memory Usage", "Total GPU Memory")
		}
	}
	return list
}

func (s *sheet) row(l *result.Level) []string {
	w := l.Merged
	send, wait, receive := w.Mean(w.Send), w.Mean(w.Wait), w.Mean(w.Receive)
	list := []string{result.Number(l.Load.Value), result.Number(w.Throughput())}
	if s.responses {
		list = append(list, result.Number(result.PerSecond(w.Responses, w.Duration)))
	}
	list = append(list, cell(send))
	if s.server {
		list = append(list, s.serverCells(w, send, receive)...)
	}
	list = append(list, cell(receive))
	for _, p := range result.Percentiles(s.plan) {
		list = append(list, cell(w.Latency.Quantile(float64(p)/100)))
	}
	if s.verbose {
		if s.plan.Percentile == 0 {
			list = append(list, cell(w.Latency.Mean()))
		}
		list = append(list, cell(send+receive), cell(wait))
		if s.gpu {
			list = append(list, gpuCells(w.GPU)...)
		}
	}
	return list
}

// serverCells splits the latency: time that the server does not account for is
// spent in the network and in the server's protocol code.
func (s *sheet) serverCells(w *result.Window, send, receive time.Duration) []string {
	st := w.Server
	if st == nil {
		st = &result.ServerStats{}
	}
	// Averages are per request, so that they add up with the client's.
	each := func(c result.Counted) time.Duration {
		if s.cache {
			return time.Duration(c.Ns / max(1, st.Success.Count))
		}
		return c.Mean()
	}
	parts := []time.Duration{each(st.Queue), each(st.Input), each(st.Infer), each(st.Output)}
	if s.cache {
		parts = append(parts, each(st.CacheHit), each(st.CacheMiss))
	}
	accounted := send + receive
	for _, p := range parts {
		accounted += p
	}
	list := []string{cell(max(0, w.Latency.Mean()-accounted))}
	for _, p := range parts {
		list = append(list, cell(p))
	}
	return list
}

func cell(d time.Duration) string { return fmt.Sprint(d.Microseconds()) }

func gpuCells(m *result.GPUMetrics) []string {
	if m == nil {
		return make([]string, 4)
	}
	var list []string
	for _, values := range []map[string]float64{m.Utilization, m.Power, m.MemoryUsed, m.MemoryTotal} {
		text := ""
		for _, gpu := range slices.Sorted(maps.Keys(values)) {
			text += gpu + ":" + result.Number(values[gpu]) + ";"
		}
		list = append(list, text)
	}
	return list
}
