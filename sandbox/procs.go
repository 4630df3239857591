package sandbox

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
)

// observe records an event of the guest's sensors or of the driver. The channel
// has validated it and set its time and observer.
func (s *Sandbox) observe(ctx context.Context, ev *audit.Event) error {
	s.procs.note(ev)
	if ev.Flow != nil {
		s.parts.Network.Attempted(ev.Step, ev.Flow)
	}
	if ev.File != nil && ev.File.Op == audit.FileRead {
		ev.File.Secrets = s.credentials.delivered.names(ev.Step, string(ev.File.Path))
	}
	if ev.Exec != nil {
		s.parts.Network.Executed(ev.Exec)
	}
	_, err := s.parts.Recorder.Post(ctx, *ev)
	return err
}

// maxProcs bounds the number of running processes in procs. Processes beyond it get no synthetic
// exit event at the end of the run.
const maxProcs = 1 << 17

// procs contains the processes with an exec event and no exit event. The zero value is empty.
type procs struct {
	mu   sync.Mutex // guards live
	live map[string]proc
}

type proc struct {
	step  string
	pid   int
	since time.Time
}

func (p *procs) note(ev *audit.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case ev.Exec != nil && len(p.live) < maxProcs:
		if p.live == nil {
			p.live = map[string]proc{}
		}
		p.live[ev.Exec.Proc] = proc{ev.Step, ev.Exec.PID, ev.Time}
	case ev.Exit != nil:
		delete(p.live, ev.Exit.Proc)
	}
}

// unfinished returns a synthetic exit event for each process without one, sorted by process ID.
func (p *procs) unfinished() []audit.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now().UTC()
	var all []audit.Event
	for _, id := range slices.Sorted(maps.Keys(p.live)) {
		q := p.live[id]
		all = append(all, audit.Event{
			Time: now, Observer: audit.Host, Kind: audit.KindExit, Step: q.step,
			Exit: &audit.Exit{Proc: id, PID: q.pid, Code: -1, Synthetic: true, DurationNS: int64(now.Sub(q.since))},
		})
	}
	clear(p.live)
	return all
}
