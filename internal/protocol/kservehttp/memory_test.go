package kservehttp

import (
	"encoding/json"
	"testing"
)

// FuzzRegistration reads register requests and holds what was read against the
// standard library, where that takes the text as well.
func FuzzRegistration(f *testing.F) {
	for _, s := range []string{
		`{"key":"/a","offset":0,"byte_size":64}`, `{"key":"\u002fa","byte_size":18446744073709551615}`, `{"key":5}`, `{}`, `[]`, `{`, ``,
		`{"raw_handle":{"b64":"AAAA"},"device_id":0,"byte_size":1}`, `{"raw_handle":[],"byte_size":-1}`, `{"byte_size":1e3,"offset":NaN}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var s scanner
		s.reset(text)
		g := &registration{}
		if !s.begin() || !s.members(g.member) || !s.end() {
			return
		}
		var want struct {
			Key  string  `json:"key"`
			Size *uint64 `json:"byte_size"`
		}
		if !json.Valid(text) || json.Unmarshal(text, &want) != nil || g.key != good {
			return // the scanner is the more lenient, and takes a name in its own case only
		}
		var exact map[string]json.RawMessage
		if json.Unmarshal(text, &exact) != nil || len(exact) != 2 || exact["key"] == nil || exact["byte_size"] == nil {
			return
		}
		if g.size == good && want.Size != nil && *want.Size != g.length {
			t.Errorf("byte_size of %q: got %d, want %d", text, g.length, *want.Size)
		}
	})
}
