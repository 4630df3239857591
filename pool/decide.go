package pool

import (
	"cmp"
	"slices"
	"time"
)

// scene is what decide bases its decision on.
type scene struct {
	items     []item // one for each key
	known     bool   // the host's available memory is known
	available int64  // bytes
	committed int64  // bytes that sandboxes in the making can use, and by which idle ones can grow
	freeing   int64  // bytes of sandboxes that are being destroyed
	reserve   int64  // bytes
	slots     int    // how many more can be made concurrently
	settling  bool   // a lease has just begun
}

// item is a key.
type item struct {
	project string
	bound   int     // idle sandboxes of its project
	load    float64 // callers that arrive while one is made; a number, not negative
	active  bool    // has had demand lately
	idle    []spare
	making  int
	waiting int   // callers
	memory  int64 // the most that one can use
	failed  bool  // the last could not be made
	paused  bool  // until the delay after the failure has passed
}

// spare is an idle sandbox.
type spare struct {
	member *member
	since  time.Time
	memory int64 // that it uses
	old    bool
}

// plan is what decide demands.
type plan struct {
	destroy []doomed
	make    []int    // indices of items, the most urgent first; an index can occur several times
	lack    []Reason // for each item why too few are made: NoMemory or Failing; NoneWarm if nothing prevents it
}

type doomed struct {
	spare
	cause Cause
}

// decide returns what to do now. It has no state, and does not depend on the order of idle sandboxes. These are the rules, in
// their order:
//
//  1. Idle sandboxes that are old, or whose key has had no demand lately, are destroyed.
//  2. Each key that has demand gets a share of the bound of its project, at most its stock. In rounds, each key gets one
//     place, those with the greatest load first. A key can have more idle sandboxes than its share only in places that no
//     share needs; the oldest above that are destroyed.
//  3. If less than the reserve is available, with what is being freed, idle sandboxes are destroyed, the oldest first,
//     until their memory makes up for it.
//  4. What a key lacks in its share is made, and one for each caller that waits. The key with the fewest, less the
//     callers that wait, is first; then the one with the greatest load. Each needs a free slot, and memory that leaves
//     the reserve and an eighth of it if all idle sandboxes use as much as they can; that eighth prevents that the pool makes what rule 3 destroys next. After a
//     failure none is made until a delay has passed, and then one until that succeeds. While a lease settles, only
//     what callers wait for is made.
func decide(s scene) plan {
	p := plan{lack: make([]Reason, len(s.items))}
	shares := make([]int, len(s.items))
	kept := make([][]spare, len(s.items))
	for i, it := range s.items {
		p.lack[i] = NoneWarm
		kept[i] = p.fresh(it)
	}
	for _, members := range projects(s.items) {
		share(s.items, members, shares)
		p.trim(s.items, members, shares, kept)
	}
	p.relieve(s, kept)
	p.refill(s, shares, kept)
	return p
}

// fresh returns the idle sandboxes of a key that rule 1 keeps.
func (p *plan) fresh(it item) (keep []spare) {
	for _, sp := range it.idle {
		switch {
		case !it.active:
			p.destroy = append(p.destroy, doomed{sp, Unwanted})
		case sp.old:
			p.destroy = append(p.destroy, doomed{sp, Old})
		default:
			keep = append(keep, sp)
		}
	}
	return keep
}

// projects returns the indices of each project's keys, those with the greatest load first.
func projects(items []item) map[string][]int {
	groups := map[string][]int{}
	for i, it := range items {
		groups[it.project] = append(groups[it.project], i)
	}
	for _, g := range groups {
		slices.SortStableFunc(g, func(a, b int) int { return cmp.Compare(items[b].load, items[a].load) })
	}
	return groups
}

// share sets the shares of a project's keys, by rule 2.
func share(items []item, group []int, shares []int) {
	free := items[group[0]].bound
	for given := true; given; {
		given = false
		for _, i := range group {
			if it := items[i]; free > 0 && it.active && shares[i] < stock(it.load, it.bound) {
				shares[i]++
				free--
				given = true
			}
		}
	}
}

// trim removes the idle sandboxes of a project from kept that have no place, by rule 2.
func (p *plan) trim(items []item, group []int, shares []int, kept [][]spare) {
	places := items[group[0]].bound
	var extra []spare // more than the share
	for _, i := range group {
		coming := max(0, items[i].making-items[i].waiting) // will be idle
		places -= max(shares[i], coming)
		sortByAge(kept[i])
		above := max(0, len(kept[i])-max(0, shares[i]-coming))
		extra = append(extra, kept[i][:above]...)
	}
	sortByAge(extra)
	p.drop(kept, extra[:max(0, len(extra)-max(0, places))], Surplus)
}

// relieve removes idle sandboxes from kept, by rule 3.
func (p *plan) relieve(s scene, kept [][]spare) {
	if !s.known {
		return
	}
	all := slices.Concat(kept...)
	sortByAge(all)
	left := s.available + s.freeing
	for _, d := range p.destroy {
		left += d.memory
	}
	n := 0
	for ; n < len(all) && left < s.reserve; n++ {
		left += all[n].memory
	}
	p.drop(kept, all[:n], Pressure)
}

// drop moves sandboxes from kept to destroy.
func (p *plan) drop(kept [][]spare, gone []spare, cause Cause) {
	drop := map[*member]bool{}
	for _, sp := range gone {
		drop[sp.member] = true
		p.destroy = append(p.destroy, doomed{sp, cause})
	}
	for i := range kept {
		kept[i] = slices.DeleteFunc(kept[i], func(sp spare) bool { return drop[sp.member] })
	}
}

// refill sets make and lack, by rule 4.
func (p *plan) refill(s scene, shares []int, kept [][]spare) {
	type unit struct{ item, has int }
	var units []unit
	for i, it := range s.items {
		has := len(kept[i]) + it.making - it.waiting
		want := max(0, shares[i]-has)
		if s.settling && !it.paused {
			want = min(want, max(0, -has))
		}
		switch {
		case want > 0 && it.paused:
			p.lack[i] = Failing
			want = 0
		case it.failed:
			want = min(want, max(0, 1-it.making))
		}
		for n := range want {
			units = append(units, unit{i, has + n})
		}
	}
	slices.SortStableFunc(units, func(a, b unit) int {
		return cmp.Or(cmp.Compare(a.has, b.has), cmp.Compare(s.items[b.item].load, s.items[a.item].load))
	})
	room := s.available - s.committed - s.reserve - s.reserve/8
	for _, u := range units {
		switch need := s.items[u.item].memory; {
		case !s.known || need > room:
			p.lack[u.item] = NoMemory
		case len(p.make) < s.slots:
			p.make = append(p.make, u.item)
			room -= need
		}
	}
}

func sortByAge(all []spare) {
	slices.SortStableFunc(all, func(a, b spare) int { return a.since.Compare(b.since) })
}
