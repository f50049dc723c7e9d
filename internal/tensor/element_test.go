package tensor

import "testing"

func TestIntegersAreWrittenByTheirType(t *testing.T) {
	ones := []byte{255, 255, 255, 255, 255, 255, 255, 255}
	for typ, want := range map[Type]string{
		Uint8: "255", Uint16: "65535", Uint32: "4294967295", Uint64: "18446744073709551615",
		Int8: "-1", Int16: "-1", Int32: "-1", Int64: "-1",
	} {
		if got := string(AppendInteger([]byte("x"), typ, ones)); got != "x"+want {
			t.Errorf("%s: got %s, want x%s", typ, got, want)
		}
	}
	if got := string(AppendInteger(nil, Int16, []byte{0, 128, 7})); got != "-32768" {
		t.Errorf("got %s, want the first element alone", got)
	}
}
