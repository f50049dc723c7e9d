package diagram

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/model"
	"shoal/internal/model/modelpb"
)

func parse(t *testing.T, text string) *modelpb.ModelConfig {
	t.Helper()
	cfg, err := model.Parse([]byte(text), "config.pbtxt")
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

const chain = `name: "chain" platform: "ensemble" max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "Z" data_type: TYPE_STRING dims: [ -1 ] }
ensemble_scheduling {
  step { model_name: "double" model_version: -1 input_map { key: "I" value: "X" } output_map { key: "O" value: "t" } }
  step { model_name: "add" model_version: 3
    input_map { key: "A" value: "X" } input_map { key: "B" value: "t" }
    output_map { key: "S" value: "Y" } output_map { key: "W" value: "Z" } }
}`

func parts(t *testing.T) func(string, int64) *modelpb.ModelConfig {
	double := parse(t, `name: "double" backend: "onnxruntime" max_batch_size: 8
		input { name: "I" data_type: TYPE_FP32 dims: [ 4 ] } output { name: "O" data_type: TYPE_FP32 dims: [ 4 ] }`)
	return func(name string, _ int64) *modelpb.ModelConfig {
		if name == "double" {
			return double
		}
		return nil // one that is not loaded
	}
}

func times(name string, _ int64) *Times {
	switch name {
	case "chain":
		return &Times{Requests: 10, Total: 2 * time.Millisecond}
	case "double":
		return &Times{Requests: 10, Queue: 100 * time.Microsecond, Compute: 900 * time.Microsecond}
	}
	return nil
}

func TestAnEnsembleAsMermaid(t *testing.T) {
	got := New(parse(t, chain), parts(t), times).Mermaid()
	want := `flowchart TD
  %% chain: 10 requests, 2.0 ms each in the server
  n0(["X"])
  n1["double<br/>onnxruntime, batch 8<br/>queue 100 us, compute 900 us<br/>50 % of the time"]
  n2["add<br/>version 3"]
  n3(["Y"])
  n4(["Z"])
  n0 -->|"X FP32[N,4]"| n1
  n0 -->|"X FP32[N,4]"| n2
  n1 -->|"t FP32[N,4]"| n2
  n2 -->|"Y FP32[N,4]"| n3
  n2 -->|"Z STRING[N,?]"| n4
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAModelAloneIsOneStep(t *testing.T) {
	cfg := parse(t, `name: "a\"b" backend: "python" input { name: "I" data_type: TYPE_INT8 dims: [ 2, -1 ] } output { name: "O" data_type: TYPE_BOOL dims: [ 1 ] }`)
	got := New(cfg, nil, func(string, int64) *Times { return nil }).DOT()
	for _, want := range []string{`digraph "a\"b"`, `n1 [label="a\"b\npython"]`, `n0 -> n1 [label="I INT8[2,?]"]`, `n1 -> n2 [label="O BOOL[1]"]`} {
		if !strings.Contains(got, want) {
			t.Errorf("got no %s in\n%s", want, got)
		}
	}
}

// TestPicturesOfAnyEnsemble draws random graphs: boxes do not cover each other,
// tensors go down, and the file is XML.
func TestPicturesOfAnyEnsemble(t *testing.T) {
	for seed := range uint64(50) {
		g := New(parse(t, randomEnsemble(rand.New(rand.NewPCG(seed, 1)))), parts(t), times)
		l := g.layout()
		for i := range l.links {
			if from, to := l.places[l.links[i].from], l.places[l.links[i].to]; from.row+1 != to.row || from.y+from.height >= to.y {
				t.Errorf("seed %d: got a link from row %d at %v to row %d at %v, want the next row, below", seed, from.row, from.y+from.height, to.row, to.y)
			}
		}
		for _, row := range l.rows {
			for i := 1; i < len(row); i++ {
				if a, b := l.places[row[i-1]], l.places[row[i]]; a.x+a.width/2 > b.x-b.width/2 {
					t.Errorf("seed %d: got boxes that cover each other in one row: up to %v, and from %v", seed, a.x+a.width/2, b.x-b.width/2)
				}
			}
		}
		d := xml.NewDecoder(strings.NewReader(g.SVG()))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}

func randomEnsemble(rng *rand.Rand) string {
	var b strings.Builder
	b.WriteString(`name: "<&>" platform: "ensemble" input { name: "t0" data_type: TYPE_FP32 dims: [ 4 ] } ensemble_scheduling {`)
	n := 1 + rng.IntN(12)
	for i := range n {
		fmt.Fprintf(&b, "step { model_name: \"double\" model_version: -1 output_map { key: \"O\" value: \"t%d\" }", i+1)
		for k := range 1 + rng.IntN(3) {
			fmt.Fprintf(&b, " input_map { key: \"I%d\" value: \"t%d\" }", k, rng.IntN(i+1))
		}
		b.WriteString(" }\n")
	}
	fmt.Fprintf(&b, `} output { name: "t%d" data_type: TYPE_FP32 dims: [ 4 ] }`, n)
	return b.String()
}
