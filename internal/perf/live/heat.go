package live

import (
	"math"
	"time"
)

// The rows of the latency strip: two for each power of ten, from 10 us to 100 s.
const (
	heatRows  = 14
	heatLow   = 10 * time.Microsecond
	perDecade = 2
)

// heatRow returns the row of a latency; the shortest are in row 0.
func heatRow(d time.Duration) int {
	if d <= heatLow {
		return 0
	}
	row := int(perDecade * math.Log10(float64(d)/float64(heatLow)))
	return min(row, heatRows-1)
}

// heatFrom returns where a row begins.
func heatFrom(row int) time.Duration {
	return time.Duration(float64(heatLow) * math.Pow(10, float64(row)/perDecade))
}

// heatCell draws a share of requests.
func heatCell(share float64) rune {
	switch {
	case share <= 0:
		return ' '
	case share < 0.01:
		return '·'
	case share < 0.1:
		return '░'
	case share < 0.3:
		return '▒'
	case share < 0.6:
		return '▓'
	default:
		return '█'
	}
}

var eighths = []rune(" ▁▂▃▄▅▆▇█")

// spark draws values as small bars, the highest as high as can be.
func spark(values []float64) string {
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	out := make([]rune, len(values))
	for i, v := range values {
		out[i] = eighths[1]
		if most > 0 {
			out[i] = eighths[1+int(math.Round(v/most*7))]
		}
	}
	return string(out)
}

// barCell draws the row of a bar that is height rows high in all; row 0 is the
// lowest.
func barCell(height float64, row int) rune {
	return eighths[int(math.Round(8*min(max(height-float64(row), 0), 1)))]
}
