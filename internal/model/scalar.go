package model

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// scalar returns a token's value in a field of that kind.
func scalar(fd protoreflect.FieldDescriptor, t token) (protoreflect.Value, bool) {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		v, ok := parseBool(t)
		return protoreflect.ValueOfBool(v), ok
	case protoreflect.Int32Kind:
		v, ok := parseInt(t, 32)
		return protoreflect.ValueOfInt32(int32(v)), ok
	case protoreflect.Int64Kind:
		v, ok := parseInt(t, 64)
		return protoreflect.ValueOfInt64(v), ok
	case protoreflect.Uint32Kind:
		v, ok := parseUint(t, 32)
		return protoreflect.ValueOfUint32(uint32(v)), ok
	case protoreflect.Uint64Kind:
		v, ok := parseUint(t, 64)
		return protoreflect.ValueOfUint64(v), ok
	case protoreflect.FloatKind:
		v, ok := parseFloat(t)
		return protoreflect.ValueOfFloat32(float32(v)), ok
	case protoreflect.DoubleKind:
		v, ok := parseFloat(t)
		return protoreflect.ValueOfFloat64(v), ok
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(t.text), t.kind == tokenString && utf8.ValidString(t.text)
	case protoreflect.EnumKind:
		v, ok := parseEnum(fd.Enum(), t)
		return protoreflect.ValueOfEnum(v), ok
	}
	panic(fmt.Sprintf("BUG: field %s has kind %s, which no configuration had before", fd.FullName(), fd.Kind()))
}

// wanted describes what a field of that kind accepts.
func wanted(fd protoreflect.FieldDescriptor) string {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.Int32Kind:
		return fmt.Sprintf("an integer from %d to %d", math.MinInt32, math.MaxInt32)
	case protoreflect.Int64Kind:
		return fmt.Sprintf("an integer from %d to %d", math.MinInt64, math.MaxInt64)
	case protoreflect.Uint32Kind:
		return fmt.Sprintf("an integer from 0 to %d", math.MaxUint32)
	case protoreflect.Uint64Kind:
		return fmt.Sprintf("an integer from 0 to %d", uint64(math.MaxUint64))
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return "a number"
	case protoreflect.StringKind:
		return "a string in quotes"
	case protoreflect.EnumKind:
		return "one of " + strings.Join(enumNames(fd.Enum()), ", ")
	case protoreflect.MessageKind:
		return fmt.Sprintf("a message: %s { ... }", fd.TextName())
	}
	return fd.Kind().String()
}

func enumNames(e protoreflect.EnumDescriptor) []string {
	var names []string
	for i := range e.Values().Len() {
		names = append(names, string(e.Values().Get(i).Name()))
	}
	return names
}

func parseEnum(e protoreflect.EnumDescriptor, t token) (protoreflect.EnumNumber, bool) {
	if t.kind == tokenWord {
		if v := e.Values().ByName(protoreflect.Name(t.text)); v != nil {
			return v.Number(), true
		}
	}
	n, ok := parseInt(t, 32)
	return protoreflect.EnumNumber(n), ok
}

// parseBool accepts the format's words for booleans, and 0 and 1 as integers.
func parseBool(t token) (v, ok bool) {
	switch {
	case t.kind == tokenWord:
		switch t.text {
		case "true", "True", "t":
			return true, true
		case "false", "False", "f":
			return false, true
		}
	case t.kind == tokenNumber:
		n, err := strconv.ParseUint(t.text, 0, 64)
		return n == 1, err == nil && n <= 1
	}
	return false, false
}

func parseInt(t token, bits int) (int64, bool) {
	if t.kind != tokenNumber || t.float {
		return 0, false
	}
	n, err := strconv.ParseInt(t.text, 0, bits)
	return n, err == nil
}

func parseUint(t token, bits int) (uint64, bool) {
	if t.kind != tokenNumber || t.float {
		return 0, false
	}
	n, err := strconv.ParseUint(t.text, 0, bits)
	return n, err == nil
}

// parseFloat turns numbers that are too large or too small into infinity or
// zero, as the format specifies; a number with a leading 0 is decimal here, and
// hexadecimal numbers are integers only.
func parseFloat(t token) (float64, bool) {
	switch t.kind {
	case tokenWord:
		switch strings.ToLower(t.text) {
		case "inf", "infinity":
			return math.Inf(1), true
		case "-inf", "-infinity":
			return math.Inf(-1), true
		case "nan":
			return math.NaN(), true
		}
	case tokenNumber:
		v, err := strconv.ParseFloat(t.text, 64)
		if e, ok := err.(*strconv.NumError); ok && e.Err == strconv.ErrRange {
			err = nil
		}
		return v, err == nil
	}
	return 0, false
}
