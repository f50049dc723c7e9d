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

// run starts an execution of a second.
func (u *usage) run(name string, ticket *Ticket) {
	u.wg.Go(func() {
		if err := ticket.Acquire(context.Background()); err != nil {
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
		if err := gone.Acquire(ctx); err == nil {
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

func TestSchedulersHoldBackLimitedInstances(t *testing.T) {
	const need = `resources { name: "R" count: 1 }`
	for name, start := range map[string]func([]backend.Instance) (Scheduler, error){
		"direct": func(in []backend.Instance) (Scheduler, error) { return StartDirect(in, &tally{}), nil },
		"batcher": func(in []backend.Instance) (Scheduler, error) {
			cfg := BatcherConfig{Policy: Policy{MaxRows: 1, Preferred: []int{1}}, Levels: []QueuePolicy{{}}, Signature: fixedSignature(1)}
			return startBatcher(cfg, in, &tally{}, newRuntimeTimer, func() (pauser, error) { return plainPauser{}, nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, log := NewLimiter(Limits{}), &runLog{start: time.Now()}
				var schedulers []Scheduler // two models that share a resource
				for range 2 {
					in := &Limited{&recorder{takes: time.Second, log: log}, join(t, l, 0, need)}
					s, err := start([]backend.Instance{in})
					if err != nil {
						t.Fatal(err)
					}
					schedulers = append(schedulers, s)
				}
				var wg sync.WaitGroup
				for i, id := range []string{"a", "b", "c", "d"} {
					wg.Go(func() {
						if err := schedulers[i%2].Do(t.Context(), request(id)); err != nil {
							t.Errorf("request %s: got %v, want no error", id, err)
						}
					})
					synctest.Wait()
				}
				wg.Wait()
				for _, s := range schedulers {
					s.Close()
				}
				if want := []string{"0s: a", "1s: b", "2s: c", "3s: d"}; !slices.Equal(log.all(), want) {
					t.Errorf("got %q, want %q", log.all(), want)
				}
			})
		})
	}
}

func TestQueuePolicyHoldsWhileAnInstanceWaitsForResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, log := NewLimiter(Limits{}), &runLog{start: time.Now()}
		const need = `resources { name: "R" count: 1 }`
		other, in := join(t, l, 0, need), &Limited{&recorder{log: log}, join(t, l, 0, need)}
		if err := other.Acquire(t.Context()); err != nil {
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
