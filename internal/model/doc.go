// Package model is what a model says of itself: its configuration (read from
// protobuf text, completed, normalised and checked) and the signature made of
// it that requests are held against. It never touches the disk or a backend,
// and everything in it is a value: safe to read from many goroutines once made.
package model
