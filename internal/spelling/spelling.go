// Package spelling tells how far a name is from one that was probably meant.
package spelling

// maxLen is how long a text may be to be a slip of the pen.
const maxLen = 100

// Distance returns the number of letters to change, add or drop that make b of
// a. A text too long to be a slip of the pen is far from everything.
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
