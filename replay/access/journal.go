package access

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
)

// Recorder writes an access event down. When it returns nil the event is durable.
type Recorder interface {
	Record(ctx context.Context, a audit.Access) error
}

// journal hands access events to the Recorder. It writes each granted access immediately, and each
// refused one as long as there are few. Beyond that it counts refused ones of the same kind, and writes
// the counts at the end of the minute: a flood cannot fill the disk, and only details are lost.
type journal struct {
	to Recorder

	mu     sync.Mutex // guards the fields below
	minute time.Time  // in which there were
	total  int        // events of refusals, and
	of     map[netip.Addr]int
	held   map[like]*audit.Access
}

// The bounds of what refusals write.
const (
	refusalsOfOne = 30  // events a minute of one address
	refusalsOfAll = 300 // events a minute of all of them
	maxHeld       = 512 // counts a minute: further ones are put together under fewer attributes

	recordTime = 10 * time.Second // for one event to become durable
)

// like is what refusals that are put together have in common.
type like struct {
	who, via, role, tenant, action, route, remote, reason string
	status                                                int
}

// allow writes an event of a request that will be answered.
func (j *journal) allow(ctx context.Context, a audit.Access) error {
	return j.write(ctx, a)
}

// write does not end with the request: a client that hangs up is recorded as well.
func (j *journal) write(ctx context.Context, a audit.Access) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	return j.to.Record(ctx, a)
}

// refuse writes an event of a refusal, or counts it.
func (j *journal) refuse(ctx context.Context, from netip.Addr, a audit.Access) {
	if !j.mayWrite(from) || j.write(ctx, a) != nil {
		j.hold(a)
	}
}

func (j *journal) mayWrite(from netip.Addr) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if now := time.Now(); now.Sub(j.minute) >= time.Minute || j.of == nil {
		j.minute, j.total, j.of = now, 0, map[netip.Addr]int{}
	}
	if j.total >= refusalsOfAll || j.of[from] >= refusalsOfOne {
		return false
	}
	j.total++
	j.of[from]++
	return true
}

// hold counts a refusal.
func (j *journal) hold(a audit.Access) {
	a.Count = max(a.Count, 1)
	a.About, a.Query = "", "" // of one of them only
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.held == nil {
		j.held = map[like]*audit.Access{}
	}
	for _, a := range []audit.Access{a, coarser(a), coarsest(a)} {
		key := likeOf(a)
		if have, ok := j.held[key]; ok {
			have.Count += a.Count
			return
		}
		if len(j.held) < maxHeld {
			j.held[key] = &a
			return
		}
	}
	a = coarsest(a) // its keys are few: the room for them is beyond maxHeld
	j.held[likeOf(a)] = &a
}

func likeOf(a audit.Access) like {
	return like{a.Who, a.Via, a.Role, a.Tenant, a.Action, a.Route, a.Remote, a.Reason, a.Status}
}

// coarser keeps the address and the reason of a refusal.
func coarser(a audit.Access) audit.Access {
	return audit.Access{Action: a.Action, Remote: a.Remote, Verdict: a.Verdict, Reason: a.Reason, Status: a.Status, Count: a.Count}
}

// coarsest keeps the reason only. Reasons, actions and statuses are constants of this code.
func coarsest(a audit.Access) audit.Access {
	a = coarser(a)
	a.Remote = ""
	return a
}

// flush writes the counts. Those that cannot be written are kept for the next time.
func (j *journal) flush(ctx context.Context) error {
	j.mu.Lock()
	held := j.held
	j.held = nil
	j.mu.Unlock()
	var failed error
	for _, a := range held {
		if failed == nil {
			failed = j.write(ctx, *a)
		}
		if failed != nil {
			j.hold(*a)
		}
	}
	return failed
}
