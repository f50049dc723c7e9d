package modelstore

import (
	"testing"

	"shoal/internal/infer"
)

func TestPackedRequestHasTheAnnouncedSize(t *testing.T) {
	r := infer.NewRequest()
	defer r.Release()
	err := Pack(r, "id", []Header{{[]byte("A"), []byte("1")}}, []Part{{"body", "text/plain", []byte("hello")}})
	if err != nil {
		t.Fatal(err)
	}
	want := "\x40\x00\x00\x00" + magic + "\x02\x00\x01\x00\x01\x00\x00\x00\x08\x00\x00\x00id" + "\x01\x00\x01\x00\x00\x00A1" + "\x05\x00\x00\x00\x04\x00\x0a\x00bodytext/plainhello"
	want = string([]byte{byte(len(want) - 4)}) + want[1:]
	if got := string(r.Inputs[0].Data.First); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte(magic + "\x00\xc8\x00\x02\x00\x01\x00OK" + "\x01\x00\x01\x00\x00\x00Xy" + "body"))
	f.Add([]byte(magic + "\x01\xf7\x01\x00\x00\x00\x00failed"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAnswer(b)
		if err != nil {
			return
		}
		size := len(magic) + 7 + len(a.Phrase) + len(a.Body)
		for _, h := range a.Headers {
			size += 6 + len(h.Name) + len(h.Value)
		}
		if size != len(b) {
			t.Errorf("got %d of %d bytes", size, len(b))
		}
	})
}
