package sched

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"shoal/internal/backend"
	"shoal/internal/infer"
	"shoal/internal/race"
)

const us = time.Microsecond

func TestCostsInterpolateAndFollow(t *testing.T) {
	var c costs
	if got := c.of(4, 1); got != 0 {
		t.Errorf("nothing seen: got %v, want 0", got)
	}
	c.observe(4, 1, 10*ms)
	if got := c.of(32, 1); got != 10*ms {
		t.Errorf("one size seen: got %v for a larger one, want the same, so that it is tried", got)
	}
	c.observe(16, 1, 22*ms)
	for rows, want := range map[int]time.Duration{4: 10 * ms, 10: 16 * ms, 16: 22 * ms, 1: 7 * ms, 20: 26 * ms} {
		if got := c.of(rows, 1); got != want {
			t.Errorf("%d rows: got %v, want %v", rows, got, want)
		}
	}
	if got := c.of(16, 3); got != 22*ms {
		t.Errorf("three busy, not seen: got %v, want what one takes, 22ms", got)
	}
	for range 60 {
		c.observe(16, 2, 30*ms)
	}
	for range 60 {
		c.observe(16, 2, 40*ms)
	}
	if got := c.of(16, 2); got < 38*ms || got > 40*ms {
		t.Errorf("a model that became slower: got %v, want nearly 40ms", got)
	}
	if got := c.of(16, 1); got != 22*ms {
		t.Errorf("one busy: got %v, want 22ms as before", got)
	}
}

func TestSizesOfCostsAscend(t *testing.T) {
	last := -1
	for rows := 1; rows < 1<<17; rows++ {
		i := sizeIndex(rows)
		if i < last || i > last+1 {
			t.Fatalf("%d rows: got point %d after %d, want each in turn", rows, i, last)
		}
		last = i
	}
}

func TestReturnsTellLoopsFromOthers(t *testing.T) {
	var loop, stream returns
	at := epoch
	for range 200 {
		back := &infer.Request{Queued: at.Add(300 * us)}
		late := &infer.Request{Queued: at.Add(9 * ms)}
		at = at.Add(10 * ms)
		loop.observe([]*infer.Request{back}, at, at, false, 2*ms)
		stream.observe([]*infer.Request{late}, at, at, false, 2*ms)
	}
	if loop.back < 0.9 || stream.back > 0.1 {
		t.Errorf("got shares of %v and %v that return, want nearly all and none", loop.back, stream.back)
	}
	if got := loop.all.within(0.95); got < 300*us || got > 360*us {
		t.Errorf("got a return within %v, want 300us or little more", got)
	}
}

// chanPauser is a pauser for bubbles that can be woken.
type chanPauser chan struct{}

func (p chanPauser) pause(d time.Duration) {
	select {
	case <-p:
	case <-time.After(d):
		select {
		case <-p:
		default:
		}
	}
}

func (p chanPauser) wake() {
	select {
	case p <- struct{}{}:
	default:
	}
}

func (chanPauser) close() {}

// TestBatcherWithAutoRunsWhatAVirtualOneDoes plays random schedules to one instance:
// of several, which is the first at one time is anybody's guess.
func TestBatcherWithAutoRunsWhatAVirtualOneDoes(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for n := range 200 {
		s := randomSchedule(rng)
		s.instances, s.ahead, s.drains = 1, 0, false
		for i := range s.arrivals {
			s.arrivals[i].leaves = 0
		}
		most := maxRows(s.cfg)
		s.cfg.Policy = NewAuto(most)
		want := playNew(s)
		s.cfg.Policy = NewAuto(most)
		got := playReal(t, s)
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("schedule %d (-virtual +real):\n%s", n, diff)
		}
	}
}

// TestAutoBringsCallersTogether has callers that send again 200 us after each
// answer of a model that takes 5 ms however many there are. They start one after
// another, and Triton's rules would have them take turns.
func TestAutoBringsCallersTogether(t *testing.T) {
	for _, instances := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			log := &runLog{start: time.Now()}
			var all []backend.Instance
			for range instances {
				all = append(all, &recorder{takes: 5 * ms, log: log})
			}
			cfg := BatcherConfig{Policy: NewAuto(8), Levels: []QueuePolicy{{}}, Signature: fixedSignature(8)}
			b, err := startBatcher(cfg, all, &counting{}, newRuntimeTimer, func() (pauser, error) { return make(chanPauser, 1), nil })
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			callers := 4 * instances
			for c := range callers {
				wg.Go(func() {
					time.Sleep(time.Duration(c) * ms)
					for range 200 {
						if err := b.Do(t.Context(), request("r")); err != nil {
							t.Error(err)
						}
						time.Sleep(200*us + time.Duration(c)*us)
					}
				})
			}
			wg.Wait()
			b.Close()
			runs := log.all()
			late, want := runs[len(runs)/2:len(runs)*3/4], strings.TrimSpace(strings.Repeat(" r", 4))
			for _, line := range late {
				if _, ids, _ := strings.Cut(line, ": "); ids != want {
					t.Errorf("%d instances, %d callers: got a batch %q, want four together", instances, callers, line)
				}
			}
		})
	}
}

// A device computes one batch while it prepares another.
type device struct {
	prepare, fixed, row time.Duration
}

func (d *device) Ahead() int   { return 1 }
func (d *device) Close() error { return nil }

func (d *device) Run(b *infer.Batch) error {
	time.Sleep(d.prepare * time.Duration(b.Rows))
	if b.Turn != nil {
		b.Turn.Await()
	}
	time.Sleep(d.fixed + d.row*time.Duration(b.Rows))
	return nil
}

// An overlapping device says so.
type overlapping struct{ *device }

func (overlapping) Overlaps() {}

// TestAutoPreparesTheRestWhileADeviceComputes has as many callers as a batch has
// rows: two batches, one of which is prepared while the other is computed, are faster
// than one for which the device waits (5,400 rows a second where a row costs much).
func TestAutoPreparesTheRestWhileADeviceComputes(t *testing.T) {
	rate := func(in backend.Instance) (perSecond int) {
		synctest.Test(t, func(t *testing.T) {
			cfg := BatcherConfig{Policy: NewAuto(64), Levels: []QueuePolicy{{}}, Signature: fixedSignature(64)}
			b, err := startBatcher(cfg, []backend.Instance{in}, &counting{}, newRuntimeTimer, func() (pauser, error) { return make(chanPauser, 1), nil })
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			var wg sync.WaitGroup
			for c := range 64 {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(1, uint64(c)))
					for range 300 {
						if err := b.Do(t.Context(), request("r")); err != nil {
							t.Error(err)
						}
						time.Sleep(200*us + time.Duration(rng.IntN(1000))*us)
					}
				})
			}
			wg.Wait()
			perSecond = int(64 * 300 / time.Since(begin).Seconds())
			b.Close()
		})
		return perSecond
	}
	for _, c := range []struct {
		name   string
		device device
		least  int // rows a second
	}{
		{"rows cost much", device{20 * us, 900 * us, 130 * us}, 6100},
		{"rows cost little", device{4 * us, 1500 * us, 25 * us}, 13_500},
	} {
		without := rate(&c.device)
		with := rate(overlapping{&c.device})
		if with < c.least || with < without*97/100 {
			t.Errorf("%s: got %d rows/s and %d without, want at least %d, and no less than without", c.name, with, without, c.least)
		}
	}
}

func TestAutoDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector makes pools forget")
	}
	b, err := StartBatcher(BatcherConfig{Policy: NewAuto(8), Levels: []QueuePolicy{{}}, Signature: fixedSignature(8)}, []backend.Instance{&instant{}}, &counting{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r, ctx := request(""), t.Context()
	_ = b.Do(ctx, r)
	if got := testing.AllocsPerRun(200, func() { _ = b.Do(ctx, r) }); got != 0 {
		t.Errorf("got %v allocations per request, want 0", got)
	}
}

// TestALeaderIsWokenBeforeItsWaitIsOver uses the pauser of the system.
func TestALeaderIsWokenBeforeItsWaitIsOver(t *testing.T) {
	p, err := newPauser()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for range 100 {
		done := make(chan struct{})
		go func() {
			p.pause(time.Hour)
			close(done)
		}()
		p.wake() // before the pause, or while it is under way
		<-done
	}
}

// TestAutoWaitsForNobodyBeyondATimeout has learned that it pays to wait.
func TestAutoWaitsForNobodyBeyondATimeout(t *testing.T) {
	a := NewAuto(8)
	at := epoch
	for range 100 { // four callers that send again after 300us; 5ms however many they are
		var all []*infer.Request
		for range 4 {
			all = append(all, &infer.Request{Queued: at.Add(300 * us)})
		}
		start := at.Add(300 * us)
		at = start.Add(5 * ms)
		a.Observe(Run{Rows: 4, Requests: 4, Busy: 1, Start: start, End: at, InFlight: 4, Batch: &infer.Batch{Requests: all}})
	}
	held := Held{Rows: 1, Requests: 1, Open: true, LastRun: 5 * ms, Since: at.Add(100 * us)}
	v := View{Now: at.Add(100 * us), Instances: 1, InFlight: 1, Peak: 4, Held: &held}
	if d := a.Decide(&v); d.Start || d.Wait < 150*us || d.More == 0 {
		t.Errorf("got %+v, want to wait for others", d)
	}
	held.Expires = v.Now.Add(30 * us)
	if d := a.Decide(&v); d.Start || d.Wait != 30*us {
		t.Errorf("one that times out in 30us: got %+v, want to wait as long", d)
	}
	held.Expires = v.Now
	if d := a.Decide(&v); !d.Start {
		t.Errorf("one whose time is over: got %+v, want to start", d)
	}
	held.Expires, v.Draining = time.Time{}, true
	if d := a.Decide(&v); !d.Start {
		t.Errorf("draining: got %+v, want to start", d)
	}
}

// TestAutoLetsALoneCallerStart at once, whatever it has learned.
func TestAutoLetsALoneCallerStart(t *testing.T) {
	a := NewAuto(8)
	if d := a.Decide(&View{Now: epoch, Requests: 1, Rows: 1, Instances: 2, Idle: 2, InFlight: 1, Peak: 1}); !d.Start || d.Fill == 0 {
		t.Errorf("got %+v, want to start without another look", d)
	}
}

// TestAutoForgetsCallersWhoLeft: a load generator ends while its requests run, and
// another one starts at once. For a moment there are twice as many requests as callers.
func TestAutoForgetsCallersWhoLeft(t *testing.T) {
	a := NewAuto(64)
	at := epoch
	run := func(inFlight int, gap time.Duration) {
		all := make([]*infer.Request, 32)
		for i := range all {
			all[i] = &infer.Request{Queued: at.Add(300 * us)}
		}
		at = at.Add(gap)
		a.Observe(Run{Rows: 32, Requests: 32, Busy: 2, Since: at.Add(-50 * ms), Start: at.Add(-50 * ms), End: at, InFlight: inFlight, Batch: &infer.Batch{Requests: all}})
	}
	for range 64 {
		run(64, 50*ms)
	}
	for _, inFlight := range []int{128, 96, 64, 64} {
		run(inFlight, 50*ms)
	}
	v := View{Instances: 2, InFlight: 32, Peak: 128}
	if got := a.callers(&v); got != 64 {
		t.Errorf("64 of 128 did not send again: got %d callers, want the 64 that did", got)
	}
	for range 5 {
		run(50, 200*us)
	}
	if got := a.callers(&v); got != 128 {
		t.Errorf("answers follow each other sooner than callers return: got %d, want the peak", got)
	}
}

// TestAutoAwaitsCallersThatAreLateTogether: the machine stopped for 20 ms, and then the
// first of eight callers returns.
func TestAutoAwaitsCallersThatAreLateTogether(t *testing.T) {
	a := NewAuto(8)
	at := epoch
	for range 64 {
		var all []*infer.Request
		for i := range 8 {
			all = append(all, &infer.Request{Queued: at.Add(100*us + time.Duration(i)*20*us)})
		}
		start := at.Add(240 * us)
		at = start.Add(2 * ms)
		a.Observe(Run{Rows: 8, Requests: 8, Busy: 1, Since: start.Add(-140 * us), Start: start, End: at, InFlight: 8, Batch: &infer.Batch{Requests: all}})
	}
	h := &Held{Rows: 1, Requests: 1, Open: true, Since: at.Add(20 * ms), LastRun: 2 * ms}
	v := &View{Now: h.Since, Instances: 1, InFlight: 1, Peak: 8, Held: h}
	if d := a.Decide(v); d.Start || d.Wait < 500*us || d.Wait > ms || d.More != 7 {
		t.Errorf("when it comes: got %+v, want to wait for the other seven, up to half of what their batch takes, which is longer than they usually take", d)
	}
	v.Now = h.Since.Add(ms)
	if d := a.Decide(v); !d.Start {
		t.Errorf("1ms later: got %+v, want to start: they do not come", d)
	}
}

// Without the wait the batches of a trial would be as small as the others, and it would
// be repeated for ever.
func TestATrialWaitsForItsCallers(t *testing.T) {
	a := NewAuto(8)
	at := epoch
	run := func(rows int, took time.Duration) {
		var all []*infer.Request
		for range rows {
			all = append(all, &infer.Request{Queued: at.Add(300 * us)})
		}
		start := at.Add(300 * us)
		at = start.Add(took)
		a.Observe(Run{Rows: rows, Requests: rows, Busy: 1, Since: start, Start: start, End: at, InFlight: 8, Batch: &infer.Batch{Requests: all}})
	}
	for range 32 {
		run(8, 900*us)
	}
	for range 64 {
		run(4, 450*us)
	}
	v := &View{Now: at, Instances: 1, InFlight: 4, Peak: 8, Held: &Held{Rows: 4, Requests: 4, Open: true, Since: at, LastRun: 450 * us}}
	a.learned.goal = goal{callers: 8, instances: 1, rows: 8}
	if d := a.Decide(v); !d.Start {
		t.Errorf("got %+v, want to start: eight rows cost as much as twice four", d)
	}
	a.learned.goal.trial = true
	if d := a.Decide(v); d.Start || d.Wait < 300*us || d.More != 4 {
		t.Errorf("on trial: got %+v, want to wait for the other four", d)
	}
}

func TestPeakRemembersASpan(t *testing.T) {
	var p peak
	if got := p.varying(); got != 1 {
		t.Errorf("nothing seen: varies by %v, want all of it", got)
	}
	span := func(n int) {
		p.see(n)
		for range 4 {
			p.pass(1, 4)
		}
	}
	span(8)
	span(8)
	if p.most() != 8 || p.varying() > 0.5 {
		t.Errorf("eight twice: got %d, varying by %v, want 8 and little", p.most(), p.varying())
	}
	p.see(2)
	if p.most() != 8 {
		t.Errorf("in the span after eight: got %d, want 8", p.most())
	}
	span(2)
	if p.most() != 2 {
		t.Errorf("after that span: got %d, want 2", p.most())
	}
}

// TestAutoForgetsASlowFirstBatch has 128 callers of a model for which 64 rows cost
// hardly more than 32, and whose first batch of 64 took ten times as long.
func TestAutoForgetsASlowFirstBatch(t *testing.T) {
	a := NewAuto(64)
	at := epoch
	v := View{Instances: 1, InFlight: 128, Peak: 128}
	run := func(rows int, took time.Duration) {
		at = at.Add(took)
		a.Observe(Run{Rows: rows, Requests: rows, Busy: 1, Start: at.Add(-took), End: at, Batch: &infer.Batch{}})
	}
	for _, rows := range []int{1, 2, 4, 8, 16, 32} {
		run(rows, 8*ms+time.Duration(rows)*100*us)
	}
	run(64, 150*ms)
	for range 20 {
		run(32, 11200*us)
	}
	if got := a.goal(&v); got >= 64 {
		t.Fatalf("after the slow batch: got a goal of %d rows, want fewer", got)
	}
	tries := 0
	for range 400 {
		rows := a.goal(&v)
		if rows == 64 {
			tries++
		}
		run(rows, 8*ms+time.Duration(rows)*100*us)
	}
	if got := a.goal(&v); got != 64 || tries < 100 {
		t.Errorf("got a goal of %d rows after 400 batches, of which %d had 64, want 64 and most", got, tries)
	}
}

// TestAutoForgetsSlowFirstBatchesOfSeveralInstances has two instances and 8 callers of a
// slow model whose first batches of four rows were disturbed. Three rows, which cost as
// much, must not stay in use for long: each batch takes a fifteenth of a second.
func TestAutoForgetsSlowFirstBatchesOfSeveralInstances(t *testing.T) {
	a := NewAuto(64)
	at := epoch
	v := View{Instances: 2, InFlight: 8, Peak: 8, Computes: true}
	run := func(rows int, took time.Duration) {
		at = at.Add(took / 2)
		a.Observe(Run{Rows: rows, Requests: rows, Busy: 2, LastEnd: at.Add(-took - ms), Start: at.Add(-took), End: at, InFlight: 8, Batch: &infer.Batch{}})
	}
	run(1, 60*ms)
	run(4, 100*ms)
	run(2, 61*ms)
	run(4, 100*ms)
	for range 26 {
		a.goal(&v)
		run(3, 60*ms)
	}
	fours := 0
	for range 150 {
		rows := a.goal(&v)
		if rows == 4 {
			fours++
		}
		run(rows, 60*ms+time.Duration(rows)*ms)
	}
	if got := a.goal(&v); got != 4 || fours < 135 {
		t.Errorf("got a goal of %d rows after 150 batches, of which %d had four, want 4 and nearly all", got, fours)
	}
}

// TestABatchAheadIsNotABusyInstance has one instance that gets batches ready while
// it runs another.
func TestABatchAheadIsNotABusyInstance(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for range 50 {
		s := randomSchedule(rng)
		s.instances, s.ahead = 1, 2
		p := &busiest{Auto: NewAuto(maxRows(s.cfg))}
		s.cfg.Policy = p
		playNew(s)
		if p.most > 1 {
			t.Fatalf("got %d busy instances, want one", p.most)
		}
	}
}

// busiest notes how many instances were busy at most.
type busiest struct {
	*Auto
	most int
}

func (b *busiest) Observe(r Run) {
	b.most = max(b.most, r.Busy)
	b.Auto.Observe(r)
}

func TestRoundNumbers(t *testing.T) {
	for _, tt := range []struct{ rows, nearest, below int }{
		{1, 1, 0},
		{2, 2, 1},
		{5, 5, 4},
		{7, 7, 6},
		{8, 8, 7},
		{9, 8, 8},
		{10, 10, 8},
		{15, 16, 14},
		{16, 16, 14},
		{18, 16, 16},
		{30, 32, 28},
		{36, 32, 32},
		{40, 40, 32},
		{48, 48, 40},
		{63, 64, 56},
		{64, 64, 56},
		{1000, 1024, 896},
	} {
		if got := round(tt.rows); got != tt.nearest {
			t.Errorf("round(%d): got %d, want %d", tt.rows, got, tt.nearest)
		}
		if got := nextRound(tt.rows); got != tt.below {
			t.Errorf("nextRound(%d): got %d, want %d", tt.rows, got, tt.below)
		}
	}
}
