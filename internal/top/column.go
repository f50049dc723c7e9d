package top

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
)

// A column is one figure of each row.
type column struct {
	title string
	text  func(*Row) string
	// value is what rows are sorted by, the largest first; nil sorts by text.
	value func(*Row) *float64
}

func (c *column) right() bool { return c.value != nil }

var serverColumn = column{"SERVER", func(r *Row) string { return r.Server }, nil}

var modelColumns = []column{
	{"MODEL", func(r *Row) string { return r.Model }, nil},
	{"VER", func(r *Row) string { return r.Version }, nil},
	{"STATE", func(r *Row) string { return r.State }, nil},
	{"REQ/S", func(r *Row) string { return rate(r.Requests) }, func(r *Row) *float64 { return r.Requests }},
	{"ROWS/S", func(r *Row) string { return rate(r.Rows) }, func(r *Row) *float64 { return r.Rows }},
	{"MEAN", func(r *Row) string { return duration(r.Mean) }, func(r *Row) *float64 { return r.Mean }},
	{"P50", func(r *Row) string { return duration(r.P50) }, func(r *Row) *float64 { return r.P50 }},
	{"P99", func(r *Row) string { return duration(r.P99) }, func(r *Row) *float64 { return r.P99 }},
	{"BATCH", func(r *Row) string { return decimal(r.Batch) }, func(r *Row) *float64 { return r.Batch }},
	{"QUEUE", func(r *Row) string { return whole(r.Queue) }, func(r *Row) *float64 { return r.Queue }},
	{"BUSY", func(r *Row) string { return percent(r.BusyShare) }, func(r *Row) *float64 { return r.BusyShare }},
	{"FAIL/S", func(r *Row) string { return rate(r.failures()) }, (*Row).failures},
	{"REJ/S", func(r *Row) string { return rate(r.Rejected) }, func(r *Row) *float64 { return r.Rejected }},
}

// trendColumn draws the requests of the last intervals; only the live view has it.
var trendColumn = column{"TREND", func(r *Row) string { return fmt.Sprintf("%*s", trendLength, sparkline(r.trend)) }, func(r *Row) *float64 { return r.Requests }}

// trendLength is how many intervals the trend has.
const trendLength = 12

// sparkline draws values by the height of a block each, with the largest at the top.
func sparkline(values []float64) string {
	most := slices.Max(append([]float64{0}, values...))
	out := make([]rune, 0, len(values))
	for _, v := range values {
		height := 0
		if most > 0 {
			height = int(math.Ceil(v / most * float64(len(blocks)-1)))
		}
		out = append(out, blocks[height])
	}
	return string(out)
}

var blocks = []rune(" \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588")

// columns returns the columns for so many servers.
func columns(servers int) []column {
	if servers > 1 {
		return append([]column{serverColumn}, modelColumns...)
	}
	return modelColumns
}

// failures are requests that failed or were refused.
func (r *Row) failures() *float64 { return plus(r.Failures, r.Refused) }

// unknown stands for a figure that the server did not report.
const unknown = "-"

func rate(v *float64) string {
	switch {
	case v == nil:
		return unknown
	case *v == 0 || *v >= 100:
		return fmt.Sprintf("%.0f", *v)
	}
	return fmt.Sprintf("%.1f", *v)
}

func decimal(v *float64) string {
	if v == nil {
		return unknown
	}
	return fmt.Sprintf("%.1f", *v)
}

func whole(v *float64) string {
	if v == nil {
		return unknown
	}
	return fmt.Sprintf("%.0f", *v)
}

// duration shows seconds with three digits.
func duration(v *float64) string {
	if v == nil {
		return unknown
	}
	d := time.Duration(min(*v, maxSeconds) * float64(time.Second))
	round := time.Nanosecond
	for round*1000 <= d {
		round *= 10
	}
	return d.Round(round).String()
}

// maxSeconds bounds a server's values to what a duration can hold.
const maxSeconds = 1e9

func percent(v *float64) string {
	if v == nil {
		return unknown
	}
	return fmt.Sprintf("%.0f%%", 100**v)
}

// order sorts rows by a column: figures with the largest first, text
// alphabetically, unknown values last. Equal rows keep their order.
func order(rows []Row, c *column, reverse bool) {
	sign := 1
	if reverse {
		sign = -1
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		if c.value == nil {
			return sign * strings.Compare(c.text(&a), c.text(&b))
		}
		x, y := c.value(&a), c.value(&b)
		switch {
		case x == nil && y == nil:
			return 0
		case x == nil:
			return 1
		case y == nil:
			return -1
		}
		return sign * cmp.Compare(*y, *x)
	})
}

// printable returns text from a server without terminal control characters.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, s)
}
