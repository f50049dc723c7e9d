package kservehttp

import (
	"math"
	"testing"
)

func TestDoublesArePrintedAsTheOriginalDoes(t *testing.T) {
	for _, c := range []struct {
		f    float64
		want string
	}{
		{0, "0.0"},
		{math.Copysign(0, -1), "-0.0"},
		{1, "1.0"},
		{-7, "-7.0"},
		{float64(float32(0.1)), "0.10000000149011612"},
		{0.1, "0.1"},
		{-2.5, "-2.5"},
		{1e10, "10000000000.0"},
		{1e20, "100000000000000000000.0"},
		{1.5e20, "150000000000000000000.0"},
		{1e21, "1e21"},
		{1e30, "1e30"},
		{1.25e30, "1.25e30"},
		{-1e300, "-1e300"},
		{123456789.125, "123456789.125"},
		{1e-5, "0.00001"},
		{1.5e-6, "0.0000015"},
		{1e-6, "0.000001"},
		{1e-7, "1e-7"},
		{1.25e-7, "1.25e-7"},
		{5e-324, "5e-324"},
		{1e15, "1000000000000000.0"},
		{math.MaxFloat64, "1.7976931348623157e308"},
		{math.NaN(), "NaN"},
		{math.Inf(1), "Infinity"},
		{math.Inf(-1), "-Infinity"},
	} {
		if got := string(appendDouble(nil, c.f)); got != c.want {
			t.Errorf("%v: got %s, want %s", c.f, got, c.want)
		}
	}
}

func TestStringsAreEscaped(t *testing.T) {
	for _, c := range []struct{ s, want string }{
		{"plain", `"plain"`},
		{`q"\/`, `"q\"\\/"`},
		{"\b\f\n\r\t\x00\x1f", `"\b\f\n\r\t\u0000\u001F"`},
		{"häß€😀", `"häß€😀"`},
		{"a\xffb\xc3", `"a` + "\uFFFD" + `b` + "\uFFFD" + `"`},
	} {
		if got := string(appendQuoted(nil, c.s)); got != c.want {
			t.Errorf("%q: got %s, want %s", c.s, got, c.want)
		}
		if got := string(appendQuoted(nil, []byte(c.s))); got != c.want {
			t.Errorf("%q as bytes: got %s, want %s", c.s, got, c.want)
		}
	}
}

// FuzzDouble makes sure that what is printed gives the same double back.
func FuzzDouble(f *testing.F) {
	for _, v := range []float64{0, 1, 0.1, 1e21, 1e-7, 5e-324, math.MaxFloat64, 123456789.125} {
		f.Add(math.Float64bits(v))
	}
	f.Fuzz(func(t *testing.T, bits uint64) {
		v := math.Float64frombits(bits)
		text := appendDouble(nil, v)
		var s scanner
		s.reset(text)
		n, ok := s.number()
		if !ok || s.pos != len(text) {
			t.Fatalf("%v: got %s, which is no number", v, text)
		}
		if got := n.float(); got != v && v == v {
			t.Fatalf("%v: got %s, which is %v", v, text, got)
		}
	})
}
