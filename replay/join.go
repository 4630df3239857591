package replay

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// attempt is the attempt of a process to connect to an address, as the guest's sensor claims or as the host observed it.
type attempt struct {
	time time.Time // of arrival, at the host
	seq  uint64
	proc string
	by   culprit
}

// culprit is how a process is named to a reader.
type culprit struct {
	pid   int
	name  string // argv[0] of its latest exec at the time, or of its parent's; not escaped
	child bool   // name is the parent's: the process itself never called execve
}

// String returns the escaped form, such as "curl[102]".
func (c culprit) String() string {
	name := "pid"
	if c.name != "" {
		name = quote(audit.Text(base(audit.Text(c.name))))
	}
	if c.child {
		name = "a child of " + name
	}
	if c.pid == 0 {
		return name
	}
	return name + "[" + strconv.Itoa(c.pid) + "]"
}

// tuple is what host and guest agree on about one flow: the sandbox's own
// address is always the same, so the source's port suffices.
type tuple struct {
	proto   string
	srcPort int
	dst     netip.Addr
	dstPort int
}

// tupleOf returns false for a flow that cannot be distinguished from others.
func tupleOf(f *audit.Flow) (tuple, bool) {
	dst, err := netip.ParseAddr(f.DstIP)
	t := tuple{strings.ToLower(f.Proto), f.SrcPort, dst.WithZone("").Unmap(), f.DstPort}
	return t, err == nil && f.SrcPort != 0
}

const (
	// joinWithin is how far apart an attempt's arrival and its flow's begin may
	// be. The guest's report comes later than the packet, more so when the guest is
	// busy; Linux gives a port to another flow with the same peer only after longer.
	joinWithin = 10 * time.Second
	// sameAttempt bounds memory: a process that sends again and again from one
	// socket is noted once in so long.
	sameAttempt = time.Second
)

// joins finds the process of what the host saw, where the host could not know it.
type joins struct {
	attempts map[tuple][]attempt // by time
	flows    map[string]begin    // by the flow's id
}

// begin is when the host saw a flow first.
type begin struct {
	key tuple
	at  time.Time
}

func newJoins() joins { return joins{map[tuple][]attempt{}, map[string]begin{}} }

// claim adds an attempt. The host observes attempts without their source ports.
func (j joins) claim(f *audit.Flow, seq uint64, at time.Time, by culprit, byHost bool) {
	key, ok := tupleOf(f)
	if !ok && (!byHost || !key.dst.IsValid()) {
		return
	}
	list := j.attempts[key]
	if n := len(list); n > 0 {
		last := list[n-1]
		if at.Before(last.time) { // a clock that was set back: keep them in order
			at = last.time
		}
		if last.proc == f.Proc && at.Sub(last.time) < sameAttempt {
			return
		}
	}
	j.attempts[key] = append(list, attempt{at, seq, f.Proc, by})
}

// flow takes up what the host saw.
func (j joins) flow(f *audit.Flow, at time.Time) {
	if _, known := j.flows[f.ID]; known || f.ID == "" {
		return
	}
	if key, ok := tupleOf(f); ok {
		j.flows[f.ID] = begin{key, beganAt(f, at)}
	}
}

func beganAt(f *audit.Flow, at time.Time) time.Time { return at.Add(-time.Duration(f.DurationNS)) }

// of returns the attempt that belongs to a flow of the host's.
func (j joins) of(f *audit.Flow, at time.Time) (attempt, bool) {
	if a, found := j.ofID(f.ID); found {
		return a, true
	}
	key, ok := tupleOf(f)
	if !ok {
		return attempt{}, false
	}
	return j.nearest(key, beganAt(f, at))
}

// ofID does so for the id of a flow.
func (j joins) ofID(id string) (attempt, bool) {
	b, known := j.flows[id]
	if !known {
		return attempt{}, false
	}
	return j.nearest(b.key, b.at)
}

// nearest returns the attempt of a flow that began at a time. If the attempts have no source ports, it returns one only if all attempts
// at the time are of one process.
func (j joins) nearest(key tuple, at time.Time) (attempt, bool) {
	list := j.attempts[key]
	if len(list) == 0 {
		key.srcPort = 0
		return j.only(key, at)
	}
	i, _ := slices.BinarySearchFunc(list, at, func(a attempt, t time.Time) int { return a.time.Compare(t) })
	near := list[max(0, i-1):min(len(list), i+1)]
	if len(near) == 0 {
		return attempt{}, false
	}
	best := slices.MinFunc(near, func(a, b attempt) int {
		return cmp.Compare(a.time.Sub(at).Abs(), b.time.Sub(at).Abs())
	})
	return best, best.time.Sub(at).Abs() <= joinWithin
}

// only returns an attempt if all attempts within joinWithin of a time are of one process.
func (j joins) only(key tuple, at time.Time) (found attempt, ok bool) {
	for _, a := range j.attempts[key] {
		if a.time.Sub(at).Abs() > joinWithin {
			continue
		}
		if ok && a.proc != found.proc {
			return attempt{}, false
		}
		found, ok = a, true
	}
	return found, ok
}
