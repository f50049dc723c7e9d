package result

import (
	"fmt"
	"strconv"
)

// Number writes a figure with six digits, as C++ streams do.
func Number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// Percent writes a share as a percentage of three digits.
func Percent(v float64) string {
	if v > 99 {
		return "over 9900%"
	}
	return fmt.Sprintf("%.3g%%", 100*v)
}
