package judge

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"shoal/internal/perf/result"
)

// A bootstrap estimates how far a run's figures may be from the true ones: it
// draws runs of the same length from the measured slices and looks how much
// their figures differ. It draws blocks of several consecutive slices, long
// enough to keep their correlation, since slow moments come in groups.
type bootstrap struct {
	slices    []result.Slice
	quantiles []int
	block     int              // slices that are drawn together
	values    []float32        // the latencies that occur, rising
	bins      [][]indexedCount // by slice
	rng       *rand.Rand
}

type indexedCount struct {
	index uint32
	count uint32
}

// draws is enough to know the standard deviation of the drawn figures within
// some percent.
const draws = 300

func newBootstrap(list []result.Slice, quantiles []int) *bootstrap {
	b := &bootstrap{slices: list, quantiles: quantiles, block: blockLength(list), rng: rand.New(rand.NewPCG(1, uint64(len(list))))}
	for i := range list {
		for _, c := range list[i].Latency {
			b.values = append(b.values, c.At)
		}
		slices.Sort(b.values)
		b.values = slices.Compact(b.values)
	}
	b.bins = make([][]indexedCount, len(list))
	for i := range list {
		b.bins[i] = make([]indexedCount, len(list[i].Latency))
		for k, c := range list[i].Latency {
			at, _ := slices.BinarySearch(b.values, c.At)
			b.bins[i][k] = indexedCount{uint32(at), c.Count}
		}
	}
	return b
}

// freedom returns the degrees of freedom of the errors.
func (b *bootstrap) freedom() float64 {
	return max(1, float64(len(b.slices))/float64(b.block)-1)
}

// errors returns the relative standard errors of throughput, mean and the
// quantiles.
func (b *bootstrap) errors() []float64 {
	figures := 2 + len(b.quantiles)
	sums, squares, n := make([]float64, figures), make([]float64, figures), make([]float64, figures)
	drawn := make([]float64, figures)
	counts := make([]uint64, len(b.values))
	for range draws {
		b.draw(counts, drawn)
		for i, v := range drawn {
			if v > 0 {
				log := math.Log(v)
				sums[i], squares[i], n[i] = sums[i]+log, squares[i]+log*log, n[i]+1
			}
		}
	}
	blocks := b.freedom() + 1
	list := make([]float64, figures)
	for i := range list {
		if n[i] < 2 {
			continue
		}
		variance := max(0, squares[i]-sums[i]*sums[i]/n[i]) / (n[i] - 1)
		list[i] = math.Sqrt(variance * blocks / (blocks - 1))
	}
	return list
}

// draw stores the figures of one drawn run in out.
func (b *bootstrap) draw(counts []uint64, out []float64) {
	clear(counts)
	var length time.Duration
	var requests uint64
	var rows int64
	var sum float64
	for drawn := 0; drawn < len(b.slices); drawn += b.block {
		first := b.rng.IntN(len(b.slices))
		for i := range min(b.block, len(b.slices)-drawn) {
			at := (first + i) % len(b.slices)
			s := &b.slices[at]
			length, rows, sum = length+s.Length, rows+s.Rows, sum+s.Sum
			requests += uint64(s.Requests)
			for _, c := range b.bins[at] {
				counts[c.index] += uint64(c.count)
			}
		}
	}
	clear(out)
	if requests == 0 || length <= 0 {
		return
	}
	out[0], out[1] = float64(rows)/length.Seconds(), sum/float64(requests)
	b.quantilesOf(counts, requests, out[2:])
}

func (b *bootstrap) quantilesOf(counts []uint64, total uint64, out []float64) {
	var seen uint64
	next := 0
	for i, c := range counts {
		seen += c
		for next < len(b.quantiles) && float64(seen) >= float64(b.quantiles[next])/100*float64(total) {
			out[next] = float64(b.values[i])
			next++
		}
	}
}

// blockLength returns how many slices are correlated, with a reserve, and
// leaves enough blocks for an estimate.
func blockLength(list []result.Slice) int {
	rate, latency := series(list)
	n := float64(len(list))
	together := max(math.Cbrt(n), 2*correlation(rate), 2*correlation(latency))
	return int(min(max(1, math.Ceil(together)), max(1, math.Floor(n/minBlocks))))
}

// minBlocks is how many blocks there are at least.
const minBlocks = 6

// correlation returns how many neighbours carry the same information: 1 when
// each value is independent of the one before it. It adds up the
// autocorrelation for as long as pairs of it stay positive; beyond that it is
// noise.
func correlation(values []float64) float64 {
	n := len(values)
	mean := 0.0
	for _, v := range values {
		mean += v / float64(n)
	}
	lagged := func(lag int) float64 {
		sum := 0.0
		for i := range n - lag {
			sum += (values[i] - mean) * (values[i+lag] - mean)
		}
		return sum / float64(n)
	}
	variance := lagged(0)
	if variance <= 0 {
		return 1
	}
	time := -1.0
	for lag := 0; lag+1 < n/2; lag += 2 {
		pair := (lagged(lag) + lagged(lag+1)) / variance
		if pair <= 0 {
			break
		}
		time += 2 * pair
	}
	return max(1, time)
}
