// Package demo has a small model repository inside the binary, to try the
// server without any files: a classifier of handwritten digits and an add_sub
// model. train.py beside this file makes the models.
package demo

import (
	"embed"
	"io/fs"
	"os"
)

//go:embed repository
var files embed.FS

// Write writes the repository to the folder dir, which must not exist.
func Write(dir string) error {
	sub, err := fs.Sub(files, "repository")
	if err != nil {
		return err
	}
	return os.CopyFS(dir, sub)
}

// Request is the body of an inference request to the digits model: a picture of
// a zero, asking for the two most likely classes.
const Request = `{"inputs":[{"name":"pixels","shape":[1,64],"datatype":"FP32","data":[` +
	`0,0,5,13,9,1,0,0, 0,0,13,15,10,15,5,0, 0,3,15,2,0,11,8,0, 0,4,12,0,0,8,8,0, ` +
	`0,5,8,0,0,9,8,0, 0,4,11,0,1,12,7,0, 0,2,14,5,10,12,0,0, 0,0,6,13,10,0,0,0]}],` +
	`"outputs":[{"name":"label"},{"name":"probabilities","parameters":{"classification":2}}]}`
