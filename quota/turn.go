package quota

import (
	"cmp"
	"container/heap"
	"time"
)

// ring gives turns to tenants, or to the projects of a tenant, by deficit round robin with a quantum of one unit: in each
// round each gets one unit, which reduces its debt. Those without debt start one sandbox each, which adds the cost of that
// sandbox to the debt. So none collects units while it has nothing to start, none has a debt of more than one start, and a
// newcomer waits for at most one start of each other. In a round, those without debt since an earlier round come first, in the
// order of their entry, and then those whose debt has just been paid, in the order of their last starts.
//
// The rounds are not executed: a turn has the number of the round in which its debt is paid.
type ring struct {
	round   int64  // the present one
	last    int64  // in which all debts are paid
	entries uint64 // so far
	starts  uint64 // so far
}

// turn is the place of a tenant or a project in its ring.
type turn struct {
	paid  int64  // the round in which its debt is paid
	entry uint64 // its number among the entries
	start uint64 // the number of its last start
}

// enter is called for one that has nothing to start until now.
func (r *ring) enter(t *turn) {
	r.entries++
	t.entry = r.entries
}

// before reports whether a comes before b.
func (r *ring) before(a, b *turn) bool {
	roundA, startA := r.next(a)
	roundB, startB := r.next(b)
	return cmp.Or(cmp.Compare(roundA, roundB), cmp.Compare(startA, startB), cmp.Compare(a.entry, b.entry)) < 0
}

// next returns the round in which t can start, and the number of the last start if its debt is not paid before that round.
func (r *ring) next(t *turn) (round int64, start uint64) {
	if t.paid < r.round {
		return r.round, 0
	}
	return t.paid, t.start
}

// begin advances to the round in which t can start, and adds the cost to its debt.
func (r *ring) begin(t *turn, cost int64) {
	r.starts++
	r.round = max(r.round, t.paid)
	t.paid, t.start = r.round+cost, r.starts
	r.last = max(r.last, t.paid)
}

// rest is called when none has anything to start: all debts are forgotten.
func (r *ring) rest() { r.round = r.last + 1 }

// tenants is a heap of tenants. It implements heap.Interface.
type tenants struct {
	list  []*tenant
	less  func(a, b *tenant) bool
	index func(*tenant) *int // where a tenant has its place in the list, counted from 1; 0 if it is not in it
}

func (h *tenants) Len() int           { return len(h.list) }
func (h *tenants) Less(i, j int) bool { return h.less(h.list[i], h.list[j]) }

// Swap implements heap.Interface.
func (h *tenants) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	*h.index(h.list[i]), *h.index(h.list[j]) = i+1, j+1
}

// Push implements heap.Interface.
func (h *tenants) Push(t any) {
	h.list = append(h.list, t.(*tenant))
	*h.index(t.(*tenant)) = len(h.list)
}

// Pop implements heap.Interface.
func (h *tenants) Pop() any {
	n := len(h.list) - 1
	t := h.list[n]
	h.list[n] = nil
	h.list = h.list[:n]
	*h.index(t) = 0
	return t
}

// put adds or removes a tenant, or moves it to its new place.
func (h *tenants) put(t *tenant, in bool) {
	switch at := *h.index(t); {
	case in && at > 0:
		heap.Fix(h, at-1)
	case in:
		heap.Push(h, t)
	case at > 0:
		heap.Remove(h, at-1)
	}
}

// first returns the first tenant, or nil.
func (h *tenants) first() *tenant {
	if len(h.list) == 0 {
		return nil
	}
	return h.list[0]
}

// clock is the source of time: the system's, unless a test sets another.
type clock interface {
	Now() time.Time
	AfterFunc(d time.Duration, f func()) stopper
}

type stopper interface{ Stop() bool }

type system struct{}

func (system) Now() time.Time                              { return time.Now() }
func (system) AfterFunc(d time.Duration, f func()) stopper { return time.AfterFunc(d, f) }
