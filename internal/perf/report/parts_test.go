package report

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/perf/result"
)

func TestReportHasThePartsOfAModel(t *testing.T) {
	w := sample(1)
	part := func(name string, us uint64) result.PartStats {
		c := func(us uint64) result.Counted { return result.Counted{Count: 7, Ns: 7 * us * 1000} }
		return result.PartStats{Model: name, ServerStats: result.ServerStats{
			Version: "2", Inferences: 7, Executions: 7, Success: c(10 * us), Queue: c(us), Input: c(us), Infer: c(5 * us), Output: c(us),
		}}
	}
	w.Parts = []result.PartStats{part("a", 10), part("b", 20)}
	var out bytes.Buffer
	(&Report{Out: &out}).server(w.Server, w.Parts, "    ")
	want := `    Inference count: 7
    Execution count: 7
    Successful request count: 7
    Avg request latency: 700 usec (overhead 460 usec + queue 30 usec + compute 210 usec)

    Composing models: 
    a, version: 2
      Inference count: 7
      Execution count: 7
      Successful request count: 7
      Avg request latency: 100 usec (overhead 20 usec + queue 10 usec + compute input 10 usec + compute infer 50 usec + compute output 10 usec)
    b, version: 2
      Inference count: 7
      Execution count: 7
      Successful request count: 7
      Avg request latency: 200 usec (overhead 40 usec + queue 20 usec + compute input 20 usec + compute infer 100 usec + compute output 20 usec)
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	level := leveled(result.Concurrency, 4)
	level.Merged.Parts = w.Parts
	r := &result.Result{Levels: []result.Level{level}}
	if got := Parts(r); len(got) != 2 || got[1].Model != "b" {
		t.Errorf("got %v, want a and b", got)
	}
	out.Reset()
	if err := WritePartCSV(&out, r, "b"); err != nil {
		t.Fatal(err)
	}
	want = "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,Server Compute Infer,Server Compute Output,Client Recv\n" +
		"4,3.5,0,40,20,20,100,20,0\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
