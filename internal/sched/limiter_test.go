package sched

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/prototext"

	"shoal/internal/backend"
	"shoal/internal/model/modelpb"
	"shoal/internal/status"
)

func join(t *testing.T, l *Limiter, device int, text string) *Ticket {
	t.Helper()
	ticket, err := l.Join(limiterConfig(t, text), device)
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

func limiterConfig(t *testing.T, text string) *modelpb.ModelRateLimiter {
	t.Helper()
	cfg := new(modelpb.ModelRateLimiter)
	if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// A usage notes when executions begin.
type usage struct {
	mu    sync.Mutex
	start time.Time
	lines []string
	wg    sync.WaitGroup
}

// acquire asks for a ticket's resources and waits for them.
func acquire(ctx context.Context, ticket *Ticket) error {
	ticket.Ask()
	return ticket.Await(ctx)
}

// run starts an execution of a second.
func (u *usage) run(name string, ticket *Ticket) {
	u.wg.Go(func() {
		if err := acquire(context.Background(), ticket); err != nil {
			panic(err)
		}
		u.mu.Lock()
		u.lines = append(u.lines, time.Since(u.start).String()+" "+name)
		u.mu.Unlock()
		time.Sleep(time.Second)
		ticket.Release()
	})
	synctest.Wait()
}

func (u *usage) check(t *testing.T, want ...string) {
	t.Helper()
	u.wg.Wait()
	slices.Sort(u.lines) // those of one moment have no order
	if !slices.Equal(u.lines, want) {
		t.Errorf("got executions %q, want %q", u.lines, want)
	}
}

func TestLimiter(t *testing.T) {
	var roomy Limits
	roomy.SetOn("R", 0, 8)
	tests := []struct {
		name   string
		limits Limits
		needs  []string // by instance, in the order of asking
		device []int
		want   []string
	}{
		{
			"as much as the neediest asks for is there: two instances take turns",
			Limits{},
			[]string{`resources { name: "R" count: 4 }`, `resources { name: "R" count: 4 }`},
			[]int{0, 0},
			[]string{"0s a", "1s b"},
		},
		{
			"small needs run together",
			Limits{},
			[]string{`resources { name: "R" count: 4 }`, `resources { name: "R" count: 2 }`, `resources { name: "R" count: 2 }`},
			[]int{0, 0, 0},
			[]string{"0s a", "1s b", "1s c"},
		},
		{
			"a limit above what is asked for lets both run", roomy,
			[]string{`resources { name: "R" count: 4 }`, `resources { name: "R" count: 4 }`},
			[]int{0, 0},
			[]string{"0s a", "0s b"},
		},
		{
			"a resource is counted by device",
			Limits{},
			[]string{`resources { name: "R" count: 4 }`, `resources { name: "R" count: 4 }`},
			[]int{0, 1},
			[]string{"0s a", "0s b"},
		},
		{
			"a global resource is not",
			Limits{},
			[]string{`resources { name: "R" global: true count: 4 }`, `resources { name: "R" global: true count: 4 }`},
			[]int{0, 1},
			[]string{"0s a", "1s b"},
		},
		{
			"nobody overtakes the first in line",
			Limits{},
			[]string{`resources { name: "R" count: 3 }`, `resources { name: "R" count: 4 }`, `resources { name: "R" count: 1 }`},
			[]int{0, 0, 0},
			[]string{"0s a", "1s b", "2s c"},
		},
		{"an instance that needs nothing always runs", Limits{}, []string{`resources { name: "R" count: 1 }`, ``}, []int{0, 0}, []string{"0s a", "0s b"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, u := NewLimiter(tt.limits), &usage{start: time.Now()}
				var tickets []*Ticket
				for i, text := range tt.needs {
					tickets = append(tickets, join(t, l, tt.device[i], text))
				}
				for i, ticket := range tickets {
					u.run(string(rune('a'+i)), ticket)
				}
				u.check(t, tt.want...)
			})
		})
	}
}

func TestLimiterServesFewestExecutionsTimesPriorityFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, u := NewLimiter(Limits{}), &usage{start: time.Now()}
		const need = `resources { name: "R" count: 1 }`
		holder, often, seldom := join(t, l, 0, need), join(t, l, 0, need), join(t, l, 0, need+"priority: 3")
		often.runs, seldom.runs = 2, 1
		u.run("holder", holder)
		u.run("seldom", seldom)
		u.run("often", often)
		u.check(t, "0s holder", "1s often", "2s seldom")
	})
}

func TestLimiterForgetsOneThatStopsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, u := NewLimiter(Limits{}), &usage{start: time.Now()}
		const need = `resources { name: "R" count: 1 }`
		a, gone, b := join(t, l, 0, need), join(t, l, 0, need), join(t, l, 0, need)
		u.run("a", a)
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		if err := acquire(ctx, gone); err == nil {
			t.Error("got no error, want the context's")
		}
		u.run("b", b)
		u.check(t, "0s a", "1s b")
		if l.used[Resource{"R", 0}] != 0 {
			t.Errorf("got %d in use at the end, want 0", l.used[Resource{"R", 0}])
		}
	})
}

func TestLimiterRefusesWhatCouldNeverRun(t *testing.T) {
	var limits Limits
	limits.Set("R", 2)
	limits.SetOn("D", 1, 5)
	both := `Resource "G" is present as both global and device-specific resource in the model configuration.`
	for _, c := range []struct{ name, needs, want string }{
		{"more than there is", `resources { name: "R" count: 3 }`, `Resource count for "R" is limited to 2 which will prevent scheduling of one or more model instances, the minimum required count is 3`},
		{"on a device that has none", `resources { name: "D" count: 1 }`, `Resource count for "D" is limited to 0 which will prevent scheduling of one or more model instances, the minimum required count is 1`},
		{"global for another instance", `resources { name: "G" count: 1 }`, both},
		{"both at once", `resources { name: "H" count: 1 } resources { name: "H" global: true count: 1 }`, strings.ReplaceAll(both, "G", "H")},
	} {
		l := NewLimiter(limits)
		join(t, l, 0, `resources { name: "G" global: true count: 1 }`)
		if _, err := l.Join(limiterConfig(t, c.needs), 0); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
}

func TestLimiterHasNoMoreThanIsAskedForAfterALeave(t *testing.T) {
	l := NewLimiter(Limits{})
	big := join(t, l, 0, `resources { name: "R" count: 4 }`)
	join(t, l, 0, `resources { name: "R" count: 1 }`)
	big.Leave()
	if got := l.total[Resource{"R", 0}]; got != 1 {
		t.Errorf("got %d of the resource, want 1", got)
	}
}

// limitedSchedulers start each kind of scheduler, without batching.
var limitedSchedulers = map[string]func([]backend.Instance) (Scheduler, error){
	"direct": func(in []backend.Instance) (Scheduler, error) { return StartDirect(in, &tally{}), nil },
	"batcher": func(in []backend.Instance) (Scheduler, error) {
		cfg := BatcherConfig{Policy: &Triton{MaxRows: 1, Preferred: []int{1}}, Levels: []QueuePolicy{{}}, Signature: fixedSignature(1)}
		return startBatcher(cfg, in, &tally{}, newRuntimeTimer, func() (pauser, error) { return plainPauser{}, nil })
	},
	"batcher with a queue policy": func(in []backend.Instance) (Scheduler, error) {
		cfg := BatcherConfig{Policy: &Triton{MaxRows: 1, Preferred: []int{1}}, Levels: []QueuePolicy{{MaxSize: 99}}, Signature: fixedSignature(1)}
		return startBatcher(cfg, in, &tally{}, newRuntimeTimer, func() (pauser, error) { return plainPauser{}, nil })
	},
}

// runLimited sends ids to models that share a resource, each to that of its
// place, all at once, and returns when each ran.
func runLimited(t *testing.T, start func([]backend.Instance) (Scheduler, error), ids [][]string, instances ...[]string) []string {
	t.Helper()
	l, log := NewLimiter(Limits{}), &runLog{start: time.Now()}
	var schedulers []Scheduler
	for _, model := range instances {
		var list []backend.Instance
		for _, priority := range model {
			list = append(list, &Limited{&recorder{takes: time.Second, log: log}, join(t, l, 0, `resources { name: "R" count: 1 } priority: `+priority)})
		}
		s, err := start(list)
		if err != nil {
			t.Fatal(err)
		}
		schedulers = append(schedulers, s)
	}
	var wg sync.WaitGroup
	for i := range ids[0] {
		for m := range ids {
			wg.Go(func() {
				if err := schedulers[m].Do(t.Context(), request(ids[m][i])); err != nil {
					t.Errorf("request %s: got %v, want no error", ids[m][i], err)
				}
			})
			synctest.Wait()
		}
	}
	wg.Wait()
	for _, s := range schedulers {
		s.Close()
	}
	return log.all()
}

func TestSchedulersHoldBackLimitedInstances(t *testing.T) {
	for name, start := range limitedSchedulers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := runLimited(t, start, [][]string{{"a", "c"}, {"b", "d"}}, []string{"1"}, []string{"1"})
				if want := []string{"0s: a", "1s: b", "2s: c", "3s: d"}; !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		})
	}
}

// An execution of "seldom" counts three times. While both have work the next is
// always of the one with the lower count, the one that asked first when they are
// equal.
func TestAModelOfAThirdOfTheWeightRunsAThirdAsOften(t *testing.T) {
	for name, start := range limitedSchedulers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var often, seldom []string
				for range 8 {
					often, seldom = append(often, "o"), append(seldom, "s")
				}
				var order strings.Builder
				for _, line := range runLimited(t, start, [][]string{often, seldom}, []string{"1"}, []string{"3"}) {
					order.WriteString(line[len(line)-1:])
				}
				if want := "oooosooosossssss"; order.String() != want {
					t.Errorf("got executions %s, want %s", order.String(), want)
				}
			})
		})
	}
}

func TestTheInstanceOfLowerPriorityRunsLessOftenThanTheOtherOfItsModel(t *testing.T) {
	for name, start := range limitedSchedulers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := NewLimiter(Limits{})
				tickets := []*Ticket{join(t, l, 0, ""), join(t, l, 0, "priority: 2")}
				var list []backend.Instance
				for _, ticket := range tickets {
					list = append(list, &Limited{&instant{}, ticket})
				}
				s, err := start(list)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				for range 10 {
					if err := s.Do(t.Context(), request("r")); err != nil {
						t.Fatal(err)
					}
				}
				if got := []uint64{tickets[0].runs - startRuns, tickets[1].runs - startRuns}; !slices.Equal(got, []uint64{7, 3}) {
					t.Errorf("got %v executions, want [7 3]", got)
				}
			})
		})
	}
}

func TestAnInstancePassedOnByARequestThatLeavesAsksForItsResourcesOnce(t *testing.T) {
	l := NewLimiter(Limits{})
	a, b := join(t, l, 0, `resources { name: "R" count: 1 }`), join(t, l, 0, `resources { name: "R" count: 1 }`)
	a.Ask() // granted, and not awaited
	b.Ask()
	a.Cancel()
	if err := b.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Ask() // for its next execution, of a request that leaves
	b.Cancel()
	a.Ask()
	a.Cancel()
	b.Release()
	if len(l.waiting) != 0 || l.used[Resource{"R", 0}] != 0 || a.holds || b.holds {
		t.Errorf("got %d waiting and %d in use, want none", len(l.waiting), l.used[Resource{"R", 0}])
	}
}

func TestQueuePolicyHoldsWhileAnInstanceWaitsForResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, log := NewLimiter(Limits{}), &runLog{start: time.Now()}
		const need = `resources { name: "R" count: 1 }`
		other, in := join(t, l, 0, need), &Limited{&recorder{log: log}, join(t, l, 0, need)}
		if err := acquire(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		cfg := plainPolicy
		cfg.Levels, cfg.Signature = []QueuePolicy{{Timeout: 200 * ms, MaxSize: 2}}, fixedSignature(8)
		made, err := startBatcher(cfg, []backend.Instance{in}, &tally{}, newRuntimeTimer, func() (pauser, error) { return plainPauser{}, nil })
		if err != nil {
			t.Fatal(err)
		}
		b := &testBatcher{Batcher: made, t: t, log: log, start: time.Now(), out: make(map[string]string)}
		for _, id := range []string{"a", "b", "c", "d"} {
			b.send(id, 1) // the instance has a
		}
		time.Sleep(time.Second)
		other.Release()
		b.finish("1s: a")
		b.answered(map[string]string{
			"a": "1s: ok", "b": "200ms: Request timeout expired", "c": "200ms: Request timeout expired",
			"d": "0s: " + status.Public(made.fullQueue("d", &cfg.Levels[0])),
		})
	})
}
