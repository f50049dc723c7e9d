package infer

import (
	"testing"
	"unsafe"
)

func TestARequestFillsLinesOfTheCache(t *testing.T) {
	if got := unsafe.Sizeof(Request{}); got != 512 {
		t.Errorf("got a size of %d, want 512: change the padding", got)
	}
}
