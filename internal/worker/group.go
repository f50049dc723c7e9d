package worker

import "sync"

// A Group tracks which workers of one model can be given work. A worker that is
// up can. One that will be back soon cannot; others take its work meanwhile. A
// broken one would fail requests at once and so attract all of them: it counts
// only when every worker of the model is broken, so that requests fail at once
// instead of waiting for ever.
type Group struct {
	mu      sync.Mutex // protects the fields below
	members []*Member
}

// A Member is a worker in its group.
type Member struct {
	group *Group

	// Under the group's mutex.
	state    Availability
	why      error // why it is broken
	offered  bool  // what the watchers were last told
	watchers []func(available bool)
}

// Join adds a worker, which is up.
func (g *Group) Join() *Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := &Member{group: g, offered: true}
	g.members = append(g.members, m)
	g.tellLocked()
	return m
}

// Leave takes the worker out of the group.
func (m *Member) Leave() {
	g := m.group
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, o := range g.members {
		if o == m {
			g.members = append(g.members[:i], g.members[i+1:]...)
			break
		}
	}
	m.watchers = nil
	g.tellLocked()
}

// Set sets the worker's availability, and why it is broken; it can be used as
// Config.Changed.
func (m *Member) Set(a Availability, why error) {
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	m.state, m.why = a, why
	m.group.tellLocked()
}

// Watch calls changed whenever the worker can no longer be given work, or can
// again; at once if it cannot now. There may be several watchers; none may
// block or call the group.
func (m *Member) Watch(changed func(available bool)) {
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	m.watchers = append(m.watchers, changed)
	if !m.offered {
		changed(false)
	}
}

// Trouble returns nil while a worker of the group can serve, or will soon, and
// otherwise the error of one of them.
func (g *Group) Trouble() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.brokenLocked() {
		return nil
	}
	return g.members[0].why
}

func (g *Group) brokenLocked() bool {
	for _, m := range g.members {
		if m.state != Broken {
			return false
		}
	}
	return len(g.members) > 0
}

// tellLocked calls the watchers of members whose state has changed.
func (g *Group) tellLocked() {
	broken := g.brokenLocked()
	for _, m := range g.members {
		offer := m.state == Up || broken
		if offer == m.offered {
			continue
		}
		m.offered = offer
		for _, changed := range m.watchers {
			changed(offer)
		}
	}
}
