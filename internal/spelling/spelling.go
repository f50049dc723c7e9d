// Package spelling measures how similar two names are, to suggest the one that
// was meant.
package spelling

import (
	"strconv"
	"strings"
)

// maxLen bounds the texts that are compared.
const maxLen = 100

// Distance returns the number of letters to change, add or drop to turn a into
// b. A text that is too long is far from everything.
func Distance(a, b string) int {
	if len(a) > maxLen {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j]+1, row[j+1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// swapped reports whether two texts differ by two neighbours that are swapped.
func swapped(a, b string) bool {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return len(a) == len(b) && i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
}

// Nearest returns the name that was probably meant by text: one that differs by
// two letters, or by a third of them, where two that are swapped count once; ""
// when none is like it.
func Nearest(text string, names []string) string {
	best, least := "", len(text)/3+1
	if len(text) > 3 {
		least = max(3, least)
	}
	for _, name := range names {
		d := Distance(text, name)
		if swapped(text, name) {
			d = 1
		}
		if d < least {
			best, least = name, d
		}
	}
	return best
}

// maxListed is how many names a hint lists.
const maxListed = 8

// Hint returns the end of an error about a name that is none of names: the one that
// was probably meant, or all when they are few.
func Hint(text string, names []string) string {
	switch near := Nearest(text, names); {
	case near != "":
		return "; did you mean " + strconv.Quote(near) + "?"
	case len(names) == 0 || len(names) > maxListed:
		return ""
	}
	return "; there are " + strings.Join(names, ", ")
}
