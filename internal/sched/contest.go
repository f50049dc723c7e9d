package sched

import (
	"math"
	"time"
)

// A contest compares what numbers of groups bring by what is answered while they are in
// use. What batches cost and how long instances are idle tells it nearly: cores that
// also read, write and run the callers are shared in ways that only a try shows. The
// number in use, the champion, and another, the challenger, have turns of some batches
// one after the other, because a machine's speed changes within seconds.
type contest struct {
	callers, instances   int // for which the scores are
	away                 int // batches since there were so many callers
	champion, challenger int
	challenged           bool // it is the challenger's turn
	turn                 turnSeen
	before               float64 // the champion's rate before the challenger's turn; 0 when there is none
	rate                 float64 // the challenger's in its turn; 0 when there is none
	rest                 int     // turns before the next challenge
	contenders           [len(groupNumbers)]contender
}

// turnSeen is what was seen of a turn.
type turnSeen struct {
	skipped int           // batches at its start, or after a pause, that do not count
	batches int           // that count
	rows    float64       // of them
	took    time.Duration // by them, from the end of one to the end of the next
	last    time.Time     // the end of the newest
}

// A contender is a number of groups that may be in use.
type contender struct {
	rows     int
	expected float64 // its rate by what was learned; 0 when it is none
	possible float64 // its rate if an instance is never idle
	score    score
}

// A score is by how much a challenger's rate was more than the champion's: the logarithm
// of their ratio.
type score struct{ mean, variance, turns float64 }

const (
	// A turn has so many batches of each instance: few at first, and more for those that
	// are still in question after many turns. The first batches of a turn were formed for
	// the one before and do not count.
	leastTurn, mostTurn = 6, 24
	turnStart           = 3
	// forgetCallers is after how many batches for another number of callers the scores are
	// forgotten: after a pause they do not all return at once.
	forgetCallers = 256
	// scoreMemory is how many turns a score remembers, and enoughTurns how many decide.
	scoreMemory, enoughTurns = 32, 4
	// firstVariance is what the variance of a turn is taken for at first.
	firstVariance = 0.08 * 0.08
	// The rate that is expected of a contender may be lower than the champion's: by the
	// part that misjudged is of a batch's time, since what is expected of groups that were
	// not in use of late may be wrong by so much, but at least contending of it.
	contending = 0.5
	misjudged  = time.Millisecond
	// promised is how many times the champion's rate is expected of one that was not
	// yet tried and becomes the champion at once.
	promised = 1.1
	// mostExpected is what is expected at most of a contender's score; it counts as much
	// as a turn.
	mostExpected = 0.1
	// speedChange is the logarithm by which the champion's rates before and after a
	// challenger's turn may differ. If they differ by more, the machine's speed changed,
	// the turn tells nothing, and there is no other challenge for changeRest turns.
	speedChange = 0.2
	changeRest  = 1
	// contestRest is for how many turns there is no challenge after all are decided, and
	// contestFading what is left of the scores then.
	contestRest   = 24
	contestFading = 0.9
)

// choose returns the goal that is in use now. best is the one of all that is expected to
// bring the most.
func (c *contest) choose(best goal, all []goal, rates, possible []float64) goal {
	if 4*max(c.callers-best.callers, best.callers-c.callers) > c.callers || c.instances != best.instances {
		if c.instances == best.instances && c.away < forgetCallers {
			c.turn.skipped = 0
			return best
		}
		*c = contest{callers: best.callers, instances: best.instances, champion: best.grouping}
	}
	c.away = 0
	for i := range c.contenders {
		c.contenders[i].expected = 0
	}
	for i := range all {
		p := &c.contenders[all[i].grouping]
		p.rows, p.expected, p.possible = all[i].rows, rates[i], possible[i]
	}
	b, champion := &c.contenders[best.grouping], &c.contenders[c.champion]
	if champion.expected == 0 || b.score.turns == 0 && b.expected > promised*champion.expected {
		c.crown(best.grouping)
		for i := range c.contenders {
			c.contenders[i].score = score{}
		}
	}
	if c.challenged && c.contenders[c.challenger].expected == 0 {
		c.crown(c.champion)
	}
	if best.grouping != c.champion && b.score.turns == 0 {
		c.rest = 0 // it was not expected to be better when the rest began
	}
	best.grouping = c.champion
	if c.challenged {
		best.grouping = c.challenger
	}
	best.rows = c.contenders[best.grouping].rows
	return best
}

// crown makes a grouping the champion, with a new turn.
func (c *contest) crown(grouping int) {
	c.champion, c.challenged, c.turn, c.before, c.rate = grouping, false, turnSeen{last: c.turn.last}, 0, 0
}

// observe learns from a batch that ended, and reports whether another grouping is in use
// from now on. took is what batches usually take.
func (c *contest) observe(rows int, end time.Time, took time.Duration) bool {
	if c.instances == 0 {
		return false
	}
	t := &c.turn
	gap := end.Sub(t.last)
	t.last = end
	if c.away++; c.away > 2*refresh || gap > max(16*took, 10*time.Millisecond) {
		t.skipped = 0 // others call, or nobody did for a while
	}
	if t.skipped++; t.skipped <= turnStart*c.instances {
		return false
	}
	t.rows += float64(rows)
	t.took += min(gap, 4*took) // during more the machine did something else
	if t.batches++; t.batches < c.instances*int(min(mostTurn, leastTurn*(1+c.contenders[c.challenger].score.turns))) {
		return false
	}
	rate := t.rows / float64(max(1, t.took))
	*t = turnSeen{last: end}
	if c.challenged {
		c.challenged, c.rate = false, rate
		return true
	}
	if c.rate > 0 {
		if math.Abs(math.Log(rate/c.before)) > speedChange {
			c.rest = changeRest
		} else {
			c.contenders[c.challenger].score.add(math.Log(2 * c.rate / (c.before + rate)))
		}
		c.rate = 0
		if c.decide() {
			return true
		}
	}
	c.before = rate
	if c.rest > 0 {
		c.rest--
		return false
	}
	return c.challenge(took)
}

// decide makes the challenger the champion if it clearly brings more, and reports whether
// it did.
func (c *contest) decide() bool {
	by := &c.contenders[c.challenger]
	s := by.score
	if s.turns < enoughTurns || s.mean-s.doubt() < c.wanted(by) {
		return false
	}
	for i := range c.contenders {
		if other := &c.contenders[i].score; other.turns > 0 {
			other.mean -= s.mean
			other.turns /= 2
		}
	}
	c.contenders[c.champion].score = score{-s.mean, s.variance, s.turns}
	by.score = score{}
	c.crown(c.challenger)
	return true
}

// wanted returns by how much a contender must be better than the champion. Small groups
// must be clearly better, see Auto.target.
func (c *contest) wanted(by *contender) float64 {
	if by.rows < c.contenders[c.champion].rows {
		return clearly - 1
	}
	return 0
}

// challenge begins the turn of a challenger, if there is one that may be better than the
// champion, whose batches take so long.
func (c *contest) challenge(took time.Duration) bool {
	best, most := -1, 0.0
	least := max(contending, 1-float64(misjudged)/float64(max(1, took)))
	for i := range c.contenders {
		p := &c.contenders[i]
		if i == c.champion || p.expected < least*c.contenders[c.champion].expected || p.possible < c.contenders[c.champion].expected {
			continue
		}
		expected := p.expected / c.contenders[c.champion].expected
		likely := (min(max(math.Log(expected), -mostExpected), mostExpected) + p.score.turns*p.score.mean) / (1 + p.score.turns)
		hope := likely + p.score.doubt() - c.wanted(p)
		if p.score.turns == 0 {
			hope = 1 + expected // those not tried yet are the first
		}
		if hope > most && p.score.turns < scoreMemory {
			best, most = i, hope
		}
	}
	if best < 0 {
		c.rest = contestRest
		for i := range c.contenders {
			c.contenders[i].score.turns *= contestFading
		}
		return false
	}
	c.challenger, c.challenged = best, true
	return true
}

func (s *score) add(by float64) {
	by = min(max(by, -0.5), 0.5)
	s.turns = min(s.turns+1, scoreMemory)
	if s.turns < 2 {
		s.mean, s.variance = by, firstVariance
		return
	}
	d := by - s.mean
	s.mean += d / s.turns
	s.variance += (d*d - s.variance) / min(s.turns+2, scoreMemory)
}

// doubt returns by how much the mean may be wrong.
func (s *score) doubt() float64 { return math.Sqrt(s.variance / max(0.01, s.turns)) }
