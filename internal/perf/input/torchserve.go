package input

import (
	"errors"
	"fmt"
	"os"

	"shoal/internal/client"
	"shoal/internal/tensor"
)

// torchInput is what perf_analyzer calls the one input of a TorchServe model: the
// path of the file to send.
var torchInput = &Port{Name: "TORCHSERVE_INPUT", Type: tensor.Bytes, Shape: tensor.Shape{1}}

// LoadFiles reads data files whose steps name files, and returns those, step by
// step.
func LoadFiles(sources []string) (*Set, [][]byte, error) {
	if len(sources) == 0 {
		return nil, nil, errors.New(`--service-kind=torchserve sends files: --input-data must name a JSON file like {"data": [{"TORCHSERVE_INPUT": ["path of a file"]}]}`)
	}
	s := &Set{}
	if err := s.readFiles([]*Port{torchInput}, nil, sources); err != nil {
		return nil, nil, err
	}
	var bodies [][]byte
	for _, stream := range s.Streams {
		for _, step := range stream {
			names, err := client.Strings(step[0].Data)
			if err != nil || len(names) != 1 {
				return nil, nil, fmt.Errorf("%s is not one path", torchInput.Name)
			}
			body, err := os.ReadFile(names[0])
			if err != nil {
				return nil, nil, err
			}
			bodies = append(bodies, body)
		}
	}
	return s, bodies, nil
}
