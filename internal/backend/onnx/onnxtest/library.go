package onnxtest

import (
	"os"
	"sync"
	"testing"

	"shoal/internal/backend/onnx/library"
)

var found = sync.OnceValues(func() (string, error) {
	return library.Find(library.Environment("", os.Getenv))
})

// Library returns the path of the ONNX Runtime for tests. Without one the test
// is skipped with the reason; in CI it fails.
func Library(t testing.TB) string {
	t.Helper()
	path, err := found()
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("CI needs ONNX Runtime: %v", err)
	}
	t.Skipf("no ONNX Runtime: %v", err)
	return ""
}
