package model

import "testing"

func TestFaultsAreLocated(t *testing.T) {
	const text = `name: "m"
max_batch_size: -1
input {
  name: "INPUT0"
  # data_type: TYPE_FP32
  dims: [ 4 ]
}
input { name: "INPUT1" data_type: TYPE_FP32 dims: [ 4 ] }
dynamic_batching { preferred_batch_size: 64 }
`
	for fault, want := range map[string]int{
		"'max_batch_size' must be non-negative value for m":                    2,
		"model input 'INPUT0' must specify 'data_type' for m":                  4,
		"model input 'INPUT1' must specify 'data_type' for m":                  8,
		"dynamic batching preferred_batch_size must be at most max_batch_size": 2,
		"preferred_batch_size must be positive for m":                          9,
		"unable to find 'model.onnx' for model 'n'":                            0,
		"": 0,
	} {
		if got := Locate([]byte(text), fault); got != want {
			t.Errorf("%q: got line %d, want %d", fault, got, want)
		}
	}
}

func FuzzLocate(f *testing.F) {
	f.Add("name: \"m\"\n", "'m' and max_batch_size")
	f.Fuzz(func(t *testing.T, text, fault string) {
		if line := Locate([]byte(text), fault); line < 0 || line > len(text)+1 {
			t.Errorf("got line %d of a text with %d bytes", line, len(text))
		}
	})
}
