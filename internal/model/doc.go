// Package model is a model's description: its configuration (parsed from
// protobuf text, completed, normalised and checked) and the signature made from
// it that requests are checked against. It never uses the disk or a backend,
// and everything in it is a value: safe to read from many goroutines once made.
package model
