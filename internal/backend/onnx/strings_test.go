package onnx

import (
	"encoding/binary"
	"testing"
)

// FuzzCheckStrings holds checkStrings to what it is for: data that it lets pass
// is exactly so many elements, which gatherStrings then cuts without looking.
func FuzzCheckStrings(f *testing.F) {
	f.Add([]byte{}, int64(0))
	f.Add([]byte{1, 0, 0, 0, 'a', 0, 0, 0, 0}, int64(2))
	f.Add([]byte{9, 0, 0, 0, 'a'}, int64(1))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, int64(1))
	f.Fuzz(func(t *testing.T, data []byte, want int64) {
		if checkStrings("m", "IN", data, want) != nil {
			return
		}
		n := int64(0)
		for rest := data; len(rest) > 0; n++ {
			rest = rest[prefix+int(binary.LittleEndian.Uint32(rest)):]
		}
		if n != want {
			t.Errorf("%x passed as %d elements, has %d", data, want, n)
		}
	})
}
