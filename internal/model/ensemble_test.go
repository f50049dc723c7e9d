package model

import (
	"strings"
	"testing"

	"shoal/internal/model/modelpb"
)

// ens is an ensemble with the given steps, inputs a and b, and output z.
func ens(steps string) string {
	return `name: "ens" platform: "ensemble" max_batch_size: 4
		input [ { name: "a" data_type: TYPE_FP32 dims: 2 }, { name: "b" data_type: TYPE_FP32 dims: 2 } ]
		output { name: "z" data_type: TYPE_FP32 dims: 2 }
		ensemble_scheduling { ` + steps + ` }`
}

// step is a step as text; the maps are written "INPUT=tensor ...".
func step(model, inputs, outputs string) string {
	text := `step { model_name: "` + model + `" model_version: -1 `
	for field, pairs := range map[string]string{"input_map": inputs, "output_map": outputs} {
		for pair := range strings.FieldsSeq(pairs) {
			key, value, _ := strings.Cut(pair, "=")
			text += field + ` { key: "` + key + `" value: "` + value + `" } `
		}
	}
	return text + "} "
}

func TestValidateFlow(t *testing.T) {
	for _, c := range []struct{ name, steps, want string }{
		{"nothing is wrong", step("m", "I=a J=b", "O=z"), ""},
		{"an input nobody reads", step("m", "I=a", "O=z"), "ensemble input 'b' for ensemble ens' is not used"},
		{"an output nobody writes", step("m", "I=a J=b", "O=y"), "ensemble output 'z' for ensemble ens' is not used"},
		{"an output that is only read", step("m", "I=a J=b", "O=y") + step("m", "I=z", "O=x"), "output 'z' for ensemble 'ens' is not written"},
		{
			"an output behind a tensor nobody writes", step("m", "I=a J=b K=w", "O=z"),
			"output 'z' for ensemble 'ens' is not written: at least one of its depending tensors, 'w', is not connected",
		},
		{
			"steps in a circle", step("m", "I=a J=y", "O=x") + step("m", "I=x J=b", "O=y P=z"),
			"output 'z' for ensemble 'ens' is not written: at least one of its depending tensors, 'y', is not connected",
		},
		{"a tensor nobody reads", step("m", "I=a J=b", "O=z P=y"), "ensemble tensor 'y' is unused in ensemble 'ens'"},
		{"a tensor that is written twice", step("m", "I=a J=b", "O=z P=z"), "ensemble tensor 'z' can appear in an output map only once for ensemble 'ens' step 0"},
		{"an input that is written", step("m", "I=a J=b", "O=z P=a"), "ensemble input 'a' for ensemble 'ens' is also written by step 0, model 'm'"},
		{
			"all at once", step("m", "I=a", "O=y P=y"),
			"ensemble tensor 'y' can appear in an output map only once for ensemble 'ens' step 0; ensemble input 'b' for ensemble ens' is not used; ensemble output 'z' for ensemble ens' is not used",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(t, ens(c.steps))
			Normalize(cfg, NormalizeOptions{})
			checkError(t, Validate(cfg, NormalizeOptions{}), c.want)
		})
	}
}

func TestNewEnsembleComparesTheSteps(t *testing.T) {
	parts := map[string]*modelpb.ModelConfig{}
	for name, text := range map[string]string{
		"two": `max_batch_size: 4 input [ { name: "I" data_type: TYPE_FP32 dims: 2 }, { name: "J" data_type: TYPE_FP32 dims: 2 } ]
			output [ { name: "O" data_type: TYPE_FP32 dims: 2 }, { name: "P" data_type: TYPE_FP32 dims: -1 } ]`,
		"half":   `max_batch_size: 2 input { name: "I" data_type: TYPE_FP32 dims: 2 } output { name: "O" data_type: TYPE_FP32 dims: 2 }`,
		"ints":   `input { name: "I" data_type: TYPE_INT32 dims: [ -1, 2 ] } output { name: "O" data_type: TYPE_FP32 dims: [ -1, 2 ] }`,
		"whole":  `input { name: "I" data_type: TYPE_FP32 dims: [ -1, 2 ] } output { name: "O" data_type: TYPE_FP32 dims: [ -1, 2 ] }`,
		"wide":   `max_batch_size: 4 input { name: "I" data_type: TYPE_FP32 dims: 3 } output { name: "O" data_type: TYPE_FP32 dims: 2 }`,
		"option": `max_batch_size: 4 input [ { name: "I" data_type: TYPE_FP32 dims: 2 }, { name: "J" data_type: TYPE_FP32 dims: 2 optional: true } ] output { name: "O" data_type: TYPE_FP32 dims: 2 }`,
		"many": `max_batch_size: 4 model_transaction_policy { decoupled: true } input [ { name: "I" data_type: TYPE_FP32 dims: 2 }, { name: "J" data_type: TYPE_FP32 dims: 2 optional: true } ]
			output [ { name: "O" data_type: TYPE_FP32 dims: 2 }, { name: "P" data_type: TYPE_FP32 dims: 2 } ]`,
	} {
		parts[name] = config(t, `name: "`+name+`" `+text)
	}
	for _, c := range []struct{ name, steps, want string }{
		{"nothing is wrong", step("two", "I=a J=b", "O=z"), ""},
		{"the batch dimension is a dimension of the step", step("whole", "I=a", "O=x") + step("two", "I=x J=b", "O=z"), ""},
		{"an optional input is left out", step("option", "I=a", "O=x") + step("two", "I=x J=b", "O=z"), ""},
		{
			"a smaller batch", step("half", "I=a", "O=x") + step("two", "I=x J=b", "O=z"),
			"ensemble ens allows maximum batch size 4, but it contains model half which only allows maximum batch size to be 2",
		},
		{
			"another type", step("ints", "I=a", "O=x") + step("two", "I=x J=b", "O=z"),
			"in ensemble ens, ensemble tensor a: inconsistent data type: TYPE_FP32 is inferred from model ens while TYPE_INT32 is inferred from model ints",
		},
		{
			"another shape", step("two", "I=a J=b", "O=x") + step("wide", "I=x", "O=z"),
			"in ensemble ens, ensemble tensor x: inconsistent shape: [-1,2] is inferred from model two while [-1,3] is inferred from model wide",
		},
		{"an input that is not there", step("two", "I=a J=b K=b", "O=z"), "in ensemble ens, ensemble tensor b is mapping to non-existing input K in model two"},
		{"an input that is left out", step("two", "I=a", "O=x") + step("two", "I=x J=b", "O=z"), "in ensemble ens, input J in model two is not mapped to any ensemble tensors"},
		{"an output that is not there", step("two", "I=a J=b", "O=z Q=y"), "in ensemble ens, ensemble tensor y is mapped from non-existing output Q in model two"},
		{"responses of one decoupled step", step("many", "I=a J=b", "O=x P=y") + step("two", "I=x J=y", "O=z"), ""},
		{
			"responses of two decoupled steps", step("many", "I=a", "O=x") + step("many", "I=b", "O=y") + step("two", "I=x J=y", "O=z"),
			"in ensemble ens, step of model 'ens' receives inputs originated from different decoupled models",
		},
		{
			"a response and an input", step("many", "I=a", "O=x") + step("two", "I=x J=b", "O=w") + step("half", "I=w", "O=z"),
			"in ensemble ens, step of model 'two' receives inputs originated from different decoupled models; " +
				"ensemble ens allows maximum batch size 4, but it contains model half which only allows maximum batch size to be 2",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := NewEnsemble(config(t, ens(c.steps)), func(name string, _ int64) *modelpb.ModelConfig { return parts[name] })
			if err != nil && strings.Contains(c.want, "; ") { // the order does not matter
				for _, want := range strings.Split(c.want, "; ") {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("got %v, want in it %s", err, want)
					}
				}
				return
			}
			checkError(t, err, c.want)
		})
	}
}

func TestNewEnsembleOrdersStepsAndLevels(t *testing.T) {
	part := config(t, `name: "p" max_batch_size: 4 input { name: "I" data_type: TYPE_FP32 dims: 2 } output { name: "O" data_type: TYPE_FP32 dims: 2 }`)
	many := config(t, `name: "many" max_batch_size: 4 model_transaction_policy { decoupled: true } input { name: "I" data_type: TYPE_FP32 dims: 2 } output { name: "O" data_type: TYPE_FP32 dims: 2 }`)
	cfg := config(t, `name: "ens" platform: "ensemble" input { name: "a" data_type: TYPE_FP32 dims: [ -1, 2 ] } output { name: "z" data_type: TYPE_FP32 dims: [ -1, 2 ] }
		ensemble_scheduling { max_inflight_requests: 3 `+step("p", "I=y", "O=z")+step("many", "I=x", "O=y")+step("p", "I=a", "O=x")+` }`)
	e, err := NewEnsemble(cfg, func(name string, _ int64) *modelpb.ModelConfig {
		if name == "many" {
			return many
		}
		return part
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := []string{e.Tensors[e.Steps[0].Inputs[0].Tensor], e.Tensors[e.Steps[1].Inputs[0].Tensor], e.Tensors[e.Steps[2].Inputs[0].Tensor]}; strings.Join(got, "") != "axy" {
		t.Errorf("got steps that read %v, want a, x and y in this order", got)
	}
	if e.Answers != 1 || e.MaxInFlight != 3 || len(e.Readers[e.Inputs[0]]) != 1 {
		t.Errorf("got level %d, bound %d, readers %v, want 1, 3 and one", e.Answers, e.MaxInFlight, e.Readers[e.Inputs[0]])
	}
}
