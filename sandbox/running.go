package sandbox

import (
	"maps"
	"slices"
	"sync"

	"github.com/custody-project/custody/guest/channel"
)

// running are the commands of the steps that run.
type running struct {
	mu      sync.Mutex // guards the fields below
	procs   []*channel.Process
	feeders map[*channel.Process]*feeder
	begun   int           // steps whose commands have not started yet, or are not attached yet
	changed chan struct{} // closed and replaced when a command has started or ended
}

func newRunning() *running {
	return &running{feeders: map[*channel.Process]*feeder{}, changed: make(chan struct{})}
}

func (r *running) all() []*channel.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.procs)
}

func (r *running) add(p *channel.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.procs = append(r.procs, p)
}

func (r *running) remove(p *channel.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.procs = slices.DeleteFunc(r.procs, func(q *channel.Process) bool { return p == q })
	delete(r.feeders, p)
	r.change()
}

// begin is called when a step begins. started is called when its command has started, or is attached, or has failed; it can be called again.
func (r *running) begin() (started func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun++
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.begun--
		r.change()
	})
}

// change wakes those who wait for a change. The caller holds mu.
func (r *running) change() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// steps are the names of the steps that run. The network's events are of the only one, or of none while several run.
type steps struct {
	network Network

	mu   sync.Mutex // guards the fields below, and is held while the network's step is set
	live []string
	past map[string]bool // all that there were
}

func (s *steps) begin(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = append(s.live, name)
	s.remember(name)
	s.set()
}

// remember adds the names of steps that there were. The caller holds mu, unless nothing else uses s.
func (s *steps) remember(names ...string) {
	if s.past == nil {
		s.past = map[string]bool{}
	}
	for _, n := range names {
		s.past[n] = true
	}
}

// names returns the names of all steps that there were, sorted.
func (s *steps) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.past))
}

func (s *steps) end(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.live, name); i >= 0 {
		s.live = slices.Delete(s.live, i, i+1)
	}
	s.set()
}

func (s *steps) set() {
	only := ""
	if len(s.live) == 1 {
		only = s.live[0]
	}
	s.network.Step(only)
}
