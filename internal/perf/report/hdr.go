package report

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"time"

	"shoal/internal/load"
)

// hdrTicks is how many lines of a spectrum halve the distance to 100 %.
const hdrTicks = 5

// WriteHDR writes the spectrum of a histogram in the format of HdrHistogram's
// tools: milliseconds, percentile, cumulative count, and 1/(1-percentile).
func WriteHDR(out io.Writer, h *load.Histogram) error {
	b := bufio.NewWriter(out)
	fmt.Fprintf(b, "%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)")
	total, seen, level := uint64(h.Count()), uint64(0), 0.0
	for bucket := range h.Buckets() {
		seen += bucket.Count
		value := millis(middle(bucket, h))
		for 100*float64(seen)/float64(total) >= level {
			fmt.Fprintf(b, "%12.3f %2.12f %10d %14.2f\n", value, level/100, seen, 1/(1-level/100))
			level = nextLevel(level)
			if seen == total {
				break
			}
		}
	}
	if total > 0 {
		fmt.Fprintf(b, "%12.3f %2.12f %10d\n", millis(h.Max()), 1.0, total)
	}
	fmt.Fprintf(b, "#[Mean    = %12.3f, StdDeviation   = %12.3f]\n", millis(h.Mean()), millis(h.Deviation()))
	fmt.Fprintf(b, "#[Max     = %12.3f, Total count    = %12d]\n", millis(h.Max()), total)
	fmt.Fprintf(b, "#[Buckets = %12d, SubBuckets     = %12d]\n", hdrBuckets, hdrSubBuckets)
	return b.Flush()
}

// What the last line says of the histogram: powers of two, and steps in each.
const (
	hdrBuckets    = 54
	hdrSubBuckets = 512
)

// middle returns the value that a bucket stands for.
func middle(b load.Bucket, h *load.Histogram) time.Duration {
	return min(max(b.From+(b.To-b.From-1)/2, h.Min()), h.Max())
}

// nextLevel returns the percentile of the next line.
func nextLevel(level float64) float64 {
	half := math.Exp2(math.Floor(math.Log2(100/(100-level))) + 1)
	return level + 100/(hdrTicks*half)
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
