package grpcserver

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// binarySuffix ends the names of metadata whose values are bytes.
const binarySuffix = "-bin"

// decodeBinary reads such a value, with or without padding.
func decodeBinary(s string) ([]byte, error) {
	if len(s)%4 == 0 {
		return base64.StdEncoding.DecodeString(s)
	}
	return base64.RawStdEncoding.DecodeString(s)
}

// reservedHeader reports whether a field belongs to the protocol and is not
// metadata.
func reservedHeader(name string) bool {
	if strings.HasPrefix(name, ":") {
		return true
	}
	switch name {
	case "content-type", "user-agent", "grpc-message-type", "grpc-encoding", "grpc-message", "grpc-status", "grpc-timeout", "te":
		return true
	}
	return false
}

// timeoutUnits are the units of a grpc-timeout.
var timeoutUnits = [256]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second,
	'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
}

// parseTimeout reads a grpc-timeout: at most 8 digits and a unit.
func parseTimeout(s string) (time.Duration, error) {
	switch {
	case len(s) < 2:
		return 0, fmt.Errorf("transport: timeout string is too short: %q", s)
	case len(s) > 9:
		return 0, fmt.Errorf("transport: timeout string is too long: %q", s)
	}
	unit := timeoutUnits[s[len(s)-1]]
	if unit == 0 {
		return 0, fmt.Errorf("transport: timeout unit is not recognized: %q", s)
	}
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 64)
	if err != nil {
		return 0, err
	}
	if n > math.MaxInt64/uint64(unit) {
		return math.MaxInt64, nil
	}
	return time.Duration(n) * unit, nil
}

// appendMessage appends the text of a status encoded for grpc-message, as many
// complete characters as fit into room bytes, and reports whether it is
// complete. Everything but printable ASCII becomes %XX, and invalid UTF-8 a
// replacement character.
func appendMessage(b []byte, s string, room int) ([]byte, bool) {
	const hex = "0123456789ABCDEF"
	var char [utf8.UTFMax]byte
	for len(s) > 0 {
		if c := s[0]; c >= ' ' && c <= '~' && c != '%' {
			if room--; room < 0 {
				return b, false
			}
			b, s = append(b, c), s[1:]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		encoded := utf8.AppendRune(char[:0], r)
		if room -= 3 * len(encoded); room < 0 {
			return b, false
		}
		for _, c := range encoded {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
		s = s[n:]
	}
	return b, true
}
