// Package spelling measures how similar two names are, to suggest the one that
// was meant.
package spelling

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
