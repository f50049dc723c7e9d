package trace

import (
	"encoding/hex"
	"fmt"
	"testing"
)

const goodParent = "00-0af7651916cd43dd8448eb211c12666c-b7ad6b7169242424-01"

func TestParentIsReadAsTheStandardSays(t *testing.T) {
	p := ParseParent(goodParent, "a=b")
	if hex.EncodeToString(p.TraceID[:]) != "0af7651916cd43dd8448eb211c12666c" || hex.EncodeToString(p.SpanID[:]) != "b7ad6b7169242424" || !p.Sampled() || p.State != "a=b" {
		t.Errorf("got %+v", p)
	}
	if p := ParseParent("00-0af7651916cd43dd8448eb211c12666c-b7ad6b7169242424-00", ""); !p.Valid() || p.Sampled() {
		t.Errorf("got %+v, want a caller that does not record", p)
	}
	if p := ParseParent("cc-0af7651916cd43dd8448eb211c12666c-b7ad6b7169242424-01-more", ""); !p.Valid() {
		t.Error("got none, want a later version to be read")
	}
	for _, bad := range []string{
		"", "x", goodParent[:54], goodParent + "-", goodParent + "0",
		"ff-0af7651916cd43dd8448eb211c12666c-b7ad6b7169242424-01",
		"00-00000000000000000000000000000000-b7ad6b7169242424-01",
		"00-0af7651916cd43dd8448eb211c12666c-0000000000000000-01",
		"00-0AF7651916cd43dd8448eb211c12666c-b7ad6b7169242424-01",
		"00-0af7651916cd43dd8448eb211c12666x-b7ad6b7169242424-01",
		"00_0af7651916cd43dd8448eb211c12666c-b7ad6b7169242424-01",
		"cc-0af7651916cd43dd8448eb211c12666c-b7ad6b7169242424-01more",
	} {
		if p := ParseParent(bad, "a=b"); p != (Parent{}) {
			t.Errorf("%s: got %+v, want none", bad, p)
		}
	}
}

func FuzzParseParent(f *testing.F) {
	f.Add(goodParent)
	f.Add("cc" + goodParent[2:] + "-x")
	f.Fuzz(func(t *testing.T, text string) {
		p := ParseParent(text, "")
		if !p.Valid() {
			if p != (Parent{}) {
				t.Errorf("%q: got %+v, want nothing", text, p)
			}
			return
		}
		if again := fmt.Sprintf("%s-%x-%x-%02x", text[:2], p.TraceID, p.SpanID, p.Flags); text[:55] != again {
			t.Errorf("%q: got %s", text, again)
		}
	})
}
