package modelserver

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

func FuzzMessage(f *testing.F) {
	b := protowire.AppendTag(nil, 1, protowire.BytesType)
	b = protowire.AppendString(b, "model")
	entry := protowire.AppendTag(nil, 1, protowire.BytesType)
	entry = protowire.AppendString(entry, "data")
	entry = protowire.AppendTag(entry, 2, protowire.BytesType)
	entry = protowire.AppendBytes(entry, []byte("abc"))
	b = protowire.AppendTag(b, 3, protowire.BytesType)
	b = protowire.AppendBytes(b, entry)
	f.Add(b)
	f.Add([]byte{0x08, 0x01, 0x19})
	var m message
	if err := m.decode(b); err != nil || m.texts[1] != "model" || len(m.input) != 1 || m.input[0].Name != "data" || string(m.input[0].Value) != "abc" {
		f.Fatalf("got %+v and %v", m, err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m message
		if m.decode(b) != nil {
			return
		}
		size := 0
		for _, p := range m.input {
			size += len(p.Name) + len(p.Value)
		}
		if size > len(b) {
			t.Errorf("got %d bytes of %d", size, len(b))
		}
	})
}
