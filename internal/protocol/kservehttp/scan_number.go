package kservehttp

import (
	"math"
	"strconv"
)

// A number is what number passed over: an integer of up to 64 bits with a
// sign, or else a double.
type number struct {
	integer   bool
	neg       bool
	magnitude uint64
	double    float64 // when integer is false
}

// float returns the value as a double, correctly rounded.
func (n number) float() float64 {
	if !n.integer {
		return n.double
	}
	f := float64(n.magnitude)
	if n.neg {
		return -f // -0 keeps its sign
	}
	return f
}

// signed returns the value when it is an integer that fits an int64.
func (n number) signed() (int64, bool) {
	switch {
	case !n.integer:
		return 0, false
	case n.neg:
		return -int64(n.magnitude), n.magnitude <= 1<<63
	}
	return int64(n.magnitude), n.magnitude <= math.MaxInt64
}

// unsigned returns the value when it is an integer that is not negative.
func (n number) unsigned() (uint64, bool) {
	return n.magnitude, n.integer && (!n.neg || n.magnitude == 0)
}

// powers are the powers of ten that a double holds exactly.
var powers = [...]float64{
	1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
}

// maxDigits is the number of decimal digits that always fit a uint64.
const maxDigits = 19

// number passes over a number. Anything that is no value at all ends up here
// too and is refused.
func (s *scanner) number() (number, bool) {
	b := s.b[s.pos:]
	p := 0
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		p = 1
	}
	first := p
	var m uint64
	for p < len(b) && b[p]-'0' < 10 {
		m = m*10 + uint64(b[p]-'0')
		p++
	}
	if p == first {
		return s.word(s.pos+p, neg)
	}
	if b[first] == '0' {
		p, m = first+1, 0 // whatever digits follow are no part of it
	}
	if p == len(b) || b[p] != '.' && b[p]|0x20 != 'e' {
		if p-first > maxDigits || neg && m > 1<<63 {
			return s.long(first, p, neg)
		}
		s.pos += p
		return number{integer: true, neg: neg, magnitude: m}, true
	}

	digits, exp := p-first, 0
	if b[p] == '.' {
		p++
		point := p
		for p < len(b) && b[p]-'0' < 10 {
			m = m*10 + uint64(b[p]-'0')
			p++
		}
		if p == point {
			return number{}, s.fail(faultFraction, s.pos+p)
		}
		exp = point - p
		digits += p - point
	}
	if p < len(b) && b[p]|0x20 == 'e' {
		e, q, ok := s.exponent(s.pos + p + 1)
		if !ok {
			return number{}, false
		}
		exp, p = exp+e, q-s.pos
	}

	// A mantissa and a power of ten that are both exact doubles give a
	// correctly rounded product or quotient.
	if digits > maxDigits || m >= 1<<53 || exp < -22 || exp > 22 {
		return s.slow(p)
	}
	s.pos += p
	f := float64(m)
	if exp < 0 {
		f /= powers[-exp]
	} else {
		f *= powers[exp]
	}
	if neg {
		f = -f
	}
	return number{double: f}, true
}

// exponent reads the digits after an e, which stands before p, and returns
// where they end. Values beyond any double's are cut short.
func (s *scanner) exponent(p int) (exp, end int, ok bool) {
	b := s.b
	neg := false
	if p < len(b) && (b[p] == '+' || b[p] == '-') {
		neg = b[p] == '-'
		p++
	}
	if p >= len(b) || b[p]-'0' > 9 {
		return 0, 0, s.fail(faultExponent, p)
	}
	for p < len(b) && b[p]-'0' < 10 {
		if exp < 1e6 {
			exp = exp*10 + int(b[p]-'0')
		}
		p++
	}
	if neg {
		exp = -exp
	}
	return exp, p, true
}

// long reads an integer of twenty digits or more, or a very negative one. Its
// digits go from first to end, counted from the current position.
func (s *scanner) long(first, end int, neg bool) (number, bool) {
	if !neg {
		if m, err := strconv.ParseUint(alias(s.b[s.pos+first:s.pos+end]), 10, 64); err == nil {
			s.pos += end
			return number{integer: true, magnitude: m}, true
		}
	}
	return s.slow(end)
}

// slow reads a number of any form and length that has n characters.
func (s *scanner) slow(n int) (number, bool) {
	f, err := strconv.ParseFloat(alias(s.b[s.pos:s.pos+n]), 64)
	if err != nil { // the form is known to be right: it is too large
		return number{}, s.fail(faultTooBig, s.pos)
	}
	s.pos += n
	return number{double: f}, true
}

// word reads NaN, Inf or Infinity at p, after the sign.
func (s *scanner) word(p int, neg bool) (number, bool) {
	s.pos = p
	switch s.peek() {
	case 'N':
		return number{double: math.NaN()}, s.literal("NaN")
	case 'I':
		if !s.literal("Inf") {
			return number{}, false
		}
		if s.peek() == 'i' && !s.literal("inity") {
			return number{}, false
		}
		if neg {
			return number{double: math.Inf(-1)}, true
		}
		return number{double: math.Inf(1)}, true
	}
	return number{}, s.fail(faultValue, p)
}
