package inflight

import "testing"

func TestPeakIsOverWhenUseStaysLow(t *testing.T) {
	const mib = 1 << 20
	var p peak
	for i, step := range []struct {
		used int64
		over bool
	}{
		{1 * mib, false}, // too small to matter
		{100 * mib, false},
		{10 * mib, false},
		{10 * mib, false},
		{90 * mib, false}, // it goes on
		{10 * mib, false},
		{0, false},
		{0, false},
		{0, false},
		{0, true},
		{0, false}, // once is enough
		{0, false},
	} {
		if got := p.over(step.used); got != step.over {
			t.Errorf("tick %d: got %v, want %v", i, got, step.over)
		}
	}
}

func TestHeapLimitLeavesRoomBesidesTheBudget(t *testing.T) {
	for _, c := range []struct{ limit, used, shelves, inUse, want int64 }{
		{1000 << 20, 0, 0, 10 << 20, 1050<<20 + heapRoom},
		{1000 << 20, 0, 0, 100 << 20, 1250 << 20},
		{1000 << 20, 900 << 20, 0, 100 << 20, 1050<<20 + heapRoom},
		{1000 << 20, 900 << 20, 800 << 20, 200 << 20, 210<<20 + 200<<20},
		{1000 << 20, 900 << 20, 1000 << 20, 100 << 20, 200 << 20},
	} {
		if got := heapLimit(c.limit, c.used, c.shelves, c.inUse); got != c.want {
			t.Errorf("heapLimit(%d, %d, %d, %d): got %d, want %d", c.limit, c.used, c.shelves, c.inUse, got, c.want)
		}
	}
}

func TestCalmIsWhenGarbageStays(t *testing.T) {
	const mib = 1 << 20
	small, large := heapUse{live: 16 * mib, resident: 19 * mib}, heapUse{live: 16 * mib, resident: 20 * mib}
	big := heapUse{live: 160 * mib, resident: 179 * mib} // less than an eighth is garbage
	count := func(c *calm, h heapUse, ticks int) (times int) {
		for range ticks {
			if c.over(h) {
				times++
			}
		}
		return times
	}
	for name, h := range map[string]heapUse{"small": small, "big": big} {
		if n := count(new(calm), h, 3*calmTicks); n != 0 {
			t.Errorf("%s: got %d collections, want none", name, n)
		}
	}
	var c calm
	if n := count(&c, large, calmTicks-1); n != 0 {
		t.Errorf("got %d collections before the server was calm for long, want none", n)
	}
	large.collections++ // by the runtime itself
	if n := count(&c, large, calmTicks-1); n != 0 {
		t.Errorf("got %d collections right after the runtime's own, want none", n)
	}
	if n := count(&c, large, 1); n != 1 {
		t.Errorf("got %d collections of a calm server with garbage, want 1", n)
	}
}

func TestHeapIsRead(t *testing.T) {
	if h := readHeap(); h.resident == 0 {
		t.Errorf("got %+v, want the size of the heap", h)
	}
	if heapInUse() == 0 {
		t.Error("got no memory in use, want some")
	}
}
