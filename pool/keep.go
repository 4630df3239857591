package pool

import (
	"cmp"
	"slices"
	"time"
)

// keep decides what to make and what to destroy whenever something has changed, and at least every Interval, until Close.
func (p *Pool) keep() {
	tick := time.NewTimer(p.opt.Interval)
	defer tick.Stop()
	failed := false // Available, the last time
	for {
		available, err := p.opt.Available()
		if err != nil && !failed {
			p.opt.Log.Warn("the host's memory is not known: no sandbox is made", "err", err)
		}
		failed = err != nil
		tick.Reset(p.step(available, err == nil))
		select {
		case <-p.work.Done():
			return
		case <-tick.C:
		case <-p.wake:
		}
	}
}

// step makes one decision and begins what it demands, and returns when the next is due. known is whether available is.
func (p *Pool) step(available int64, known bool) (due time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	due = p.opt.Interval
	if p.closed {
		return due
	}
	now := time.Now()
	if !now.Before(p.settled) {
		p.settle()
	} else {
		due = min(due, p.settled.Sub(now))
	}
	p.forget(now)
	kinds := p.sorted()
	plan := decide(p.scene(kinds, now, available, known))
	for _, d := range plan.destroy {
		p.end(d.member, d.cause)
	}
	for _, i := range plan.make {
		k := kinds[i]
		k.making++
		p.tasks.Go(func() { p.tend(k) })
	}
	for i, k := range kinds {
		if k.lack = plan.lack[i]; k.lack != NoneWarm && k.making == 0 {
			p.refuse(k, k.lack)
		}
	}
	return due
}

// forget removes kinds without demand that own nothing. The caller holds mu.
func (p *Pool) forget(now time.Time) {
	for key, k := range p.kinds {
		if now.Sub(k.last) > p.opt.Quiet && k.callers == 0 && k.making == 0 && len(k.idle) == 0 {
			delete(p.kinds, key)
		}
	}
}

// sorted returns the kinds in an order that depends on their keys only. The caller holds mu.
func (p *Pool) sorted() []*kind {
	kinds := make([]*kind, 0, len(p.kinds))
	for _, k := range p.kinds {
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(a, b *kind) int { return compare(a.key, b.key) })
	return kinds
}

func compare(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Template, b.Template), cmp.Compare(a.Tier, b.Tier),
		cmp.Compare(a.Shape.CPUs, b.Shape.CPUs), cmp.Compare(a.Shape.Memory, b.Shape.Memory), cmp.Compare(a.Shape.Disk, b.Shape.Disk))
}

// scene describes the present state for decide. The caller holds mu.
func (p *Pool) scene(kinds []*kind, now time.Time, available int64, known bool) scene {
	s := scene{known: known, available: available, reserve: p.opt.Reserve, slots: p.opt.Concurrent, settling: !p.settled.IsZero()}
	for m := range p.members {
		switch {
		case m.state != ending:
		case m.stuck:
			s.slots-- // or a Destroy that always fails would let the number of sandboxes grow without bound
		default:
			s.freeing += m.memory
		}
	}
	for _, k := range kinds {
		i := item{project: k.key.Project, bound: p.opt.MaxIdle(k.key.Project), load: k.demand.read(now, p.opt.Window) * (k.takes + p.opt.Settle).Seconds(),
			active: now.Sub(k.last) <= p.opt.Quiet, making: k.making, waiting: len(k.waiting), memory: k.key.Shape.Memory,
			failed: k.retry.wait != nil, paused: now.Before(k.retry.at)}
		for _, m := range k.idle {
			i.idle = append(i.idle, spare{member: m, since: m.since, memory: m.memory, old: now.Sub(m.since) > p.opt.MaxAge})
			s.committed += max(0, i.memory-m.memory)
		}
		s.slots -= k.making
		s.committed += int64(k.making) * i.memory
		s.items = append(s.items, i)
	}
	return s
}
