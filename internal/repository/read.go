package repository

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"shoal/internal/status"
)

// maxFile bounds a configuration or label file. Real ones have kilobytes; the
// bound keeps a wrong path from filling the memory.
const maxFile = 16 << 20

// readFile returns the content of a regular file at one moment.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // opening a pipe would block
		return nil, status.Errorf(status.InvalidArgument, "it is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readWhole(f)
}

// readWhole reads a file and refuses one that changed meanwhile: half an old
// and half a new file may well parse.
func readWhole(f fs.File) ([]byte, error) {
	before, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if before.Size() > maxFile {
		return nil, tooLarge(before.Size())
	}
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	after, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if int64(len(content)) != before.Size() || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return nil, status.Errorf(status.Unavailable, "the file changed while it was read; load the model again when it is written")
	}
	return content, nil
}

func tooLarge(size int64) error {
	return status.Errorf(status.InvalidArgument, "the file has %s, and at most %s are read", megabytes(size), megabytes(maxFile))
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
