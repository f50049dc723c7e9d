package kservehttp

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// scanAll passes over a document and returns the fault in it, if any.
func scanAll(text []byte) (fault, int) {
	var s scanner
	s.reset(text)
	if s.begin() && s.skip() {
		s.end()
	}
	return s.fault, s.at
}

func TestScannerNamesFaultsAsTheOriginalDoes(t *testing.T) {
	for _, c := range []struct {
		text string
		want string
	}{
		{``, "The document is empty. at 0"},
		{"  \n", "The document is empty. at 3"},
		{`{}x`, "The document root must not be followed by other values. at 2"},
		{`{} {}`, "The document root must not be followed by other values. at 3"},
		{`{not json`, "Missing a name for object member. at 1"},
		{`{"a":1,}`, "Missing a name for object member. at 7"},
		{`{"a" 1}`, "Missing a colon after a name of object member. at 5"},
		{`{"a":1 "b"}`, "Missing a comma or '}' after an object member. at 7"},
		{`{"a":1`, "Missing a comma or '}' after an object member. at 6"},
		{`[1 2]`, "Missing a comma or ']' after an array element. at 3"},
		{`[1`, "Missing a comma or ']' after an array element. at 2"},
		{`[01]`, "Missing a comma or ']' after an array element. at 2"},
		{`[1,]`, "Invalid value. at 3"},
		{`[tru]`, "Invalid value. at 4"},
		{`[nul`, "Invalid value. at 4"},
		{`[falsy]`, "Invalid value. at 5"},
		{`[-]`, "Invalid value. at 2"},
		{`[+1]`, "Invalid value. at 1"},
		{`[.5]`, "Invalid value. at 1"},
		{`[Nan]`, "Invalid value. at 3"},
		{`[Infinite]`, "Invalid value. at 8"},
		{`[-Ing]`, "Invalid value. at 4"},
		{`["abc`, "Missing a closing quotation mark in string. at 5"},
		{"[\"a\x00b\"]", "Missing a closing quotation mark in string. at 3"},
		{"[\"a\nb\"]", "Invalid encoding in string. at 3"},
		{`["a\qb"]`, "Invalid escape character in string. at 3"},
		{`["a\`, "Invalid escape character in string. at 3"},
		{`["\u12x4"]`, "Incorrect hex digit after \\u escape in string. at 2"},
		{`["\u12`, "Incorrect hex digit after \\u escape in string. at 2"},
		{`["\ud800"]`, "The surrogate pair in string is invalid. at 2"},
		{`["\ud800\ud800"]`, "The surrogate pair in string is invalid. at 2"},
		{`["\udc00"]`, "The surrogate pair in string is invalid. at 2"},
		{`["\ud800\uzzzz"]`, "Incorrect hex digit after \\u escape in string. at 2"},
		{`[1.]`, "Miss fraction part in number. at 3"},
		{`[1.e5]`, "Miss fraction part in number. at 3"},
		{`[1e]`, "Miss exponent in number. at 3"},
		{`[1e+]`, "Miss exponent in number. at 4"},
		{`[1e999]`, "Number too big to be stored in double. at 1"},
		{`[-1e999]`, "Number too big to be stored in double. at 1"},
		{`[` + strings.Repeat("9", 400) + `]`, "Number too big to be stored in double. at 1"},
	} {
		f, at := scanAll([]byte(c.text))
		if got := faultTexts[f] + " at " + strconv.Itoa(at); got != c.want {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
	}
}

func TestScannerTakesWhatTheOriginalDoes(t *testing.T) {
	for _, text := range []string{
		`{}`, `[]`, ` [ ] `, `"x"`, `1`, `true`, `null`, `{"a":{"b":[1,{"c":null}]}}`,
		`[NaN,Inf,Infinity,-NaN,-Inf,-Infinity]`,
		"{}\x00rest", // a NUL ends the text
		"[\"\xff\"]", // strings need not be UTF-8
		`["\u00e9\ud83d\ude00\/\b\f\n\r\t"]`,
		`[0,-0,0.0,1e0,1E+5,1e-400,123456789012345678901234567890]`,
	} {
		if f, at := scanAll([]byte(text)); f != noFault {
			t.Errorf("%q: got %q at %d, want no fault", text, faultTexts[f], at)
		}
	}
}

func TestScannerReadsNumbersExactly(t *testing.T) {
	for _, text := range []string{
		"0", "1", "-1", "0.1", "0.5", "3.14159265358979", "1e22", "1e23", "123456789e-22", "9007199254740993", "9007199254740993e1",
		"0.10000000149011612", "1.7976931348623157e308", "5e-324", "2.2250738585072011e-308", "1e-400", "18446744073709551615",
		"18446744073709551616", "-9223372036854775808", "-9223372036854775809", "99999999999999999999", "0.000000000000000000000000000001",
		"4.9406564584124654e-324", "6.02214076e23", "0e400",
	} {
		var s scanner
		s.reset([]byte(text))
		n, ok := s.number()
		want, _ := strconv.ParseFloat(text, 64)
		if got := n.float(); !ok || got != want {
			t.Errorf("%s: got %v (%v), want %v", text, got, ok, want)
		}
	}
}

func TestScannerTellsIntegersFromDoubles(t *testing.T) {
	for _, c := range []struct {
		text             string
		signed, unsigned bool
	}{
		{"0", true, true},
		{"-0", true, true},
		{"-1", true, false},
		{"9223372036854775807", true, true},
		{"9223372036854775808", false, true},
		{"18446744073709551615", false, true},
		{"18446744073709551616", false, false},
		{"-9223372036854775808", true, false},
		{"-9223372036854775809", false, false},
		{"1.0", false, false},
		{"1e2", false, false},
		{"NaN", false, false},
	} {
		var s scanner
		s.reset([]byte(c.text))
		n, _ := s.number()
		_, signed := n.signed()
		_, unsigned := n.unsigned()
		if signed != c.signed || unsigned != c.unsigned {
			t.Errorf("%s: got signed %v unsigned %v, want %v and %v", c.text, signed, unsigned, c.signed, c.unsigned)
		}
	}
}

func TestScannerIsNotStoppedByDepth(t *testing.T) {
	const depth = 250_000
	begin := time.Now()
	for _, text := range []string{
		strings.Repeat("[", depth) + strings.Repeat("]", depth),
		strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth),
		strings.Repeat(`[{"a":`, depth) + "1" + strings.Repeat("}]", depth),
	} {
		if f, at := scanAll([]byte(text)); f != noFault {
			t.Errorf("got %q at %d, want no fault", faultTexts[f], at)
		}
		if f, _ := scanAll([]byte(text[:len(text)-1])); f == noFault {
			t.Error("got no fault in a text without its last bracket")
		}
	}
	// Time that grew with the square of the depth would be minutes.
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("took %v, want much less than 20s", took)
	}
}

// FuzzScanner holds the scanner against encoding/json. They differ, on purpose,
// in what is said here: the scanner takes NaN and Inf, bytes that are not
// UTF-8 in strings, a text that a NUL ends and any depth; it refuses numbers
// that no double holds and lone surrogates.
func FuzzScanner(f *testing.F) {
	for _, seed := range []string{
		`{"inputs":[{"name":"INPUT0","shape":[1,16],"datatype":"FP32","data":[0.1,-2,3e5]}]}`, `[true,false,null,"\u00e9\ud83d\ude00"]`,
		`[1.5e300,1e-400,0.1,12345678901234567890]`, `{"a":{"b":[[]]}}`, `"\`, `[NaN]`, "\"\xff\"", `-`, `01`, "\x00", `{"a":1,"a":2}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, at := scanAll(text)
		if got != noFault && (at < 0 || at > len(text)) {
			t.Fatalf("%q: fault at %d of %d", text, at, len(text))
		}
		if bytes.ContainsAny(text, "NI\x00") || !utf8.Valid(text) {
			return
		}
		want := json.Valid(text)
		if (got == noFault) != want && got != faultTooBig && got != faultSurrogate && bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) < 10000 {
			t.Fatalf("%q: got %q at %d, encoding/json says %v", text, faultTexts[got], at, want)
		}
		if got == noFault {
			sameValue(t, text)
		}
	})
}

// sameValue holds a scalar document against encoding/json.
func sameValue(t *testing.T, text []byte) {
	t.Helper()
	var s scanner
	s.reset(text)
	switch c := s.space(); {
	case c == '"':
		raw, _, _ := s.str()
		var want string
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		if got := string(appendUnescaped(nil, raw)); got != want {
			t.Fatalf("%q: got %q, want %q", text, got, want)
		}
	case c == '-' || c >= '0' && c <= '9':
		n, _ := s.number()
		var want float64
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		if got := n.float(); math.Float64bits(got) != math.Float64bits(want) {
			t.Fatalf("%s: got %v, want %v", text, got, want)
		}
	}
}
