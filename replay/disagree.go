package replay

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy/link"
)

const (
	// unsettled is how long after it began one side may still report
	// of a flow: longer than the gateway waits for a client's first bytes.
	unsettled = 45 * time.Second
	// teardown is how long before the end of a run's last step a connection may reach
	// the gateway and not be taken any more.
	teardown = 250 * time.Millisecond
	// maxCompared flows and claims are compared; of further ones a finding reports that they were not.
	maxCompared = 1 << 18
	// maxDisagreements are reported of each rule, with maxEvidence records each.
	maxDisagreements = 100
	maxEvidence      = 32
)

// Disagreements returns the differences between what guest and host report about the
// network, as findings that no record has yet. rows are all records of a
// run, in order of seq; what has happened too lately to be judged is left out.
//
// Nothing is said of what cannot be known: before the guest's sensor has spoken
// at all, near gaps and holes where the other side's word may be lost, and of
// packets that the kernel sends on its own. A guest kernel that was taken over can
// claim every flow that it makes; that there is no finding proves nothing.
func Disagreements(rows Rows) ([]Finding, error) {
	j := newJudge()
	for row, err := range rows {
		if err != nil {
			return nil, err
		}
		r, err := decode(row)
		j.row(row.Seq, row.Time)
		if err != nil {
			j.lost(nanos(row.Time))
			continue
		}
		j.add(&r)
	}
	return group(j.verdicts()), nil
}

func makeDisagreements(r *records) []disagreement {
	j := newJudge()
	for i := range r.moments {
		m := &r.moments[i]
		j.row(m.seq, m.time())
		switch p := m.what.(type) {
		case *audit.Flow:
			j.add(&audit.Record{Seq: m.seq, Event: audit.Event{Kind: m.kind, Time: m.time(), Observer: m.observer, Step: m.step, Flow: p}})
		case *audit.DNS:
			j.add(&audit.Record{Seq: m.seq, Event: audit.Event{Kind: m.kind, Time: m.time(), Observer: m.observer, Step: m.step, DNS: p}})
		case *audit.Gap:
			j.add(&audit.Record{Seq: m.seq, Event: audit.Event{Kind: m.kind, Time: m.time(), Observer: m.observer, Step: m.step, Gap: p}})
		case *audit.Lifecycle:
			j.add(&audit.Record{Seq: m.seq, Event: audit.Event{Kind: m.kind, Time: m.time(), Observer: m.observer, Step: m.step, Lifecycle: p}})
		default:
			if m.state != readable {
				j.lost(m.at)
			} else {
				j.heard(m.observer, m.at)
			}
		}
	}
	return j.verdicts()
}

// disagreement is one flow or claim that the other side did not report.
type disagreement struct {
	rule audit.Rule
	seq  uint64
	at   int64
	step string
	key  tuple
	what audit.FlowState
	by   string // proc
	pid  int
	more string // instead of all that: why no more was compared
}

// judge compares what the host saw with what the guest claims.
type judge struct {
	seen    map[tuple]side // by the host
	claimed map[tuple]side
	unbound map[tuple]bool      // claims without a port of their own: source port 0
	given   map[netip.Addr]bool // addresses that stand for a name at the gateway
	deaf    stretches           // where a claim may be missing
	blind   stretches           // where a sighting may be missing
	next    uint64
	before  int64 // time of the row before
	last    int64
	alive   int64 // when the guest's sensor first spoke; 0: never
	spoke   bool
	end     *audit.Lifecycle // of the run
	endedAt int64
	drained int64  // when the last step ended: the guest has said all of it by then
	over    uint64 // seq of the first that was not compared
	overAt  int64
}

// side is the first that one side said of a flow.
type side struct {
	seq    uint64
	at     int64
	step   string
	state  audit.FlowState
	proc   string
	pid    int
	errno  int
	judged bool // a claim of something that the host must see
}

func newJudge() *judge {
	return &judge{seen: map[tuple]side{}, claimed: map[tuple]side{}, unbound: map[tuple]bool{}, given: map[netip.Addr]bool{}, next: 1}
}

// row takes the place of a record: where some are not there, anything may be missing.
func (j *judge) row(seq uint64, t time.Time) {
	at := nanos(t)
	if seq > j.next && j.next > 1 {
		j.deaf.add(j.before, at)
		j.blind.add(j.before, at)
	}
	j.next, j.before, j.last = seq+1, at, max(j.last, at)
}

func (j *judge) lost(at int64) {
	j.deaf.add(at, at)
	j.blind.add(at, at)
}

func (j *judge) heard(o audit.Observer, at int64) {
	if o == audit.Guest && (!j.spoke || at < j.alive) {
		j.alive, j.spoke = at, true
	}
}

func (j *judge) add(r *audit.Record) {
	at := nanos(r.Time)
	j.heard(r.Observer, at)
	host := r.Observer == audit.Host
	switch {
	case r.Kind == audit.KindFlow && r.Flow != nil:
		j.flow(r, at)
	case r.Kind == audit.KindDNS && r.DNS != nil && host && r.DNS.Synthetic:
		for _, a := range r.DNS.Answers {
			if addr, err := netip.ParseAddr(a); err == nil && len(j.given) < maxCompared {
				j.given[addr.Unmap()] = true
			}
		}
	case r.Kind == audit.KindGap && r.Gap != nil:
		j.gap(r.Gap, host, at)
	case r.Kind == audit.KindStep && r.Lifecycle != nil && host && r.Lifecycle.Phase == audit.PhaseEnd:
		j.drained = at
		if r.Lifecycle.Status != audit.StatusDone {
			j.lost(at) // what was under way at its end may be recorded by one side only
		}
	case r.Kind == audit.KindRun && r.Lifecycle != nil && host && r.Lifecycle.Phase == audit.PhaseEnd:
		j.end, j.endedAt = r.Lifecycle, at
	}
}

func (j *judge) gap(g *audit.Gap, host bool, at int64) {
	switch {
	case !host && g.Stage == audit.StageKernelRing && (g.What == "" || g.What == string(audit.KindFlow)):
		j.deaf.add(at, at)
	case host && g.Stage == audit.StageFlowRing:
		j.blind.add(at, at)
	case host && g.Stage != audit.StageOutput:
		j.lost(at)
	}
}

func (j *judge) flow(r *audit.Record, at int64) {
	f := r.Flow
	host := r.Observer == audit.Host
	key, bound := tupleOf(f)
	if host && f.State == audit.FlowDeny && f.DstIP == "" && (f.Proto == "" || f.Proto == "tcp") { // many that were put together, not one that is no IP
		j.blind.add(at, at)
	}
	if key.proto != "tcp" && key.proto != "udp" || !key.dst.IsValid() || toResolver(f) {
		return
	}
	what := side{seq: r.Seq, at: at, step: r.Step, state: f.State, proc: f.Proc, pid: f.PID, errno: f.Errno}
	switch {
	case !host && f.State == audit.FlowAttempt && !bound:
		if len(j.unbound) < maxCompared {
			j.unbound[key] = true
		}
	case !host && f.State == audit.FlowAttempt:
		what.judged = key.proto == "tcp" && leaves(f, key.dst)
		j.note(j.claimed, key, what)
	case host && bound && f.State != audit.FlowAttempt:
		what.at = nanos(beganAt(f, r.Time))
		j.note(j.seen, key, what)
	}
}

// note keeps the first of each side, and a later one that has to be judged where the first has not.
func (j *judge) note(m map[tuple]side, key tuple, s side) {
	first, known := m[key]
	switch {
	case !known && len(m) >= maxCompared:
		if j.over == 0 {
			j.over, j.overAt = s.seq, s.at
		}
	case !known:
		m[key] = s
	case s.judged && !first.judged:
		m[key] = s
	case first.proc == "" && s.proc != "":
		first.proc, first.pid = s.proc, s.pid
		m[key] = first
	}
}

// leaves reports whether a connect that the guest reports must have put a packet on its card.
func leaves(f *audit.Flow, dst netip.Addr) bool {
	switch {
	case f.Errno != 0 && syscall.Errno(f.Errno) != syscall.EINPROGRESS:
		return false // it failed where it began, or was answered with a refusal that the host recorded
	case dst.IsLoopback(), dst.IsUnspecified(), dst.IsMulticast(), dst.IsLinkLocalUnicast(), dst == link.Guest4, dst == link.Guest6:
		return false
	}
	src, err := netip.ParseAddr(f.SrcIP)
	return err != nil || src.Unmap() != dst
}

// toResolver reports whether a flow carries questions, which are events of their own.
func toResolver(f *audit.Flow) bool {
	dst, err := netip.ParseAddr(f.DstIP)
	return err == nil && f.DstPort == 53 && (dst.Unmap() == link.Gateway4 || dst.Unmap() == link.Gateway6)
}

// verdicts returns the disagreements in order of seq.
func (j *judge) verdicts() []disagreement {
	list := []disagreement{}
	j.deaf.settle()
	j.blind.settle()
	for key, s := range j.seen {
		if j.unclaimed(key, s) {
			list = append(list, disagreement{rule: audit.RuleFlowUnclaimed, seq: s.seq, at: s.at, step: s.step, key: key, what: s.state})
		}
	}
	for key, s := range j.claimed {
		if j.unseen(key, s) {
			list = append(list, disagreement{rule: audit.RuleConnectUnseen, seq: s.seq, at: s.at, step: s.step, key: key, what: s.state, by: s.proc, pid: s.pid})
		}
	}
	if j.over != 0 {
		list = append(list, disagreement{rule: audit.RuleFlowUnclaimed, seq: j.over, at: j.overAt,
			more: fmt.Sprintf("more than %d flows or claims: from here on guest and host were not compared", maxCompared)})
	}
	slices.SortFunc(list, func(a, b disagreement) int { return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.rule, b.rule)) })
	return list
}

func (j *judge) unclaimed(key tuple, s side) bool {
	if _, claimed := j.claimed[key]; claimed || s.proc != "" || j.over != 0 {
		return false
	}
	without := key
	without.srcPort = 0
	return !j.unbound[without] && j.spoke && j.alive <= s.at+int64(joinWithin) && !j.deaf.near(s.at) && j.settled(s.at, 0)
}

func (j *judge) unseen(key tuple, s side) bool {
	if _, seen := j.seen[key]; seen || !s.judged || j.over != 0 || j.blind.near(s.at) {
		return false
	}
	grace := time.Duration(0)
	if j.given[key.dst] {
		if s.errno != 0 { // the client may have given up before the gateway took the connection
			return false
		}
		grace = teardown
	}
	return j.settled(s.at, grace)
}

// settled reports whether all has been said about what began at an instant.
func (j *judge) settled(at int64, grace time.Duration) bool {
	if j.end != nil && j.end.Status == audit.StatusDone {
		if grace > 0 && j.drained != 0 {
			return at <= min(j.endedAt, j.drained)-int64(grace)
		}
		return at <= j.endedAt-int64(grace)
	}
	return at <= j.last-int64(unsettled)
}

// stretches are spans of time about which less is known, and so is what is near them.
type stretches struct{ list []stretch }

type stretch struct{ from, to int64 }

func (s *stretches) add(from, to int64) {
	from, to = early(min(from, to)), late(max(from, to))
	if n := len(s.list); n > 0 && from <= s.list[n-1].to && to >= s.list[n-1].from {
		s.list[n-1] = stretch{min(from, s.list[n-1].from), max(to, s.list[n-1].to)}
		return
	}
	s.list = append(s.list, stretch{from, to})
}

func early(at int64) int64 { return max(at, minNanos+int64(joinWithin)) - int64(joinWithin) }
func late(at int64) int64  { return min(at, maxNanos-int64(joinWithin)) + int64(joinWithin) }

// settle puts them in order, without overlaps.
func (s *stretches) settle() {
	slices.SortFunc(s.list, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	kept := s.list[:0]
	for _, one := range s.list {
		if n := len(kept); n > 0 && one.from <= kept[n-1].to {
			kept[n-1].to = max(kept[n-1].to, one.to)
		} else {
			kept = append(kept, one)
		}
	}
	s.list = kept
}

func (s *stretches) near(at int64) bool {
	i, exact := slices.BinarySearchFunc(s.list, at, func(a stretch, t int64) int { return cmp.Compare(a.from, t) })
	return exact || i > 0 && at <= s.list[i-1].to
}

// group makes findings of disagreements: those of one step about one destination are one.
func group(list []disagreement) []Finding {
	type about struct {
		rule           audit.Rule
		step, by, more string
		dst            netip.AddrPort
		proto          string
		what           audit.FlowState
	}
	found := []Finding{}
	at, counts, rules := map[about]int{}, map[int]int{}, map[audit.Rule]int{}
	for _, d := range list {
		key := about{d.rule, d.step, d.by, d.more, netip.AddrPortFrom(d.key.dst, uint16(d.key.dstPort)), d.key.proto, d.what}
		n, known := at[key]
		if !known {
			if rules[d.rule]++; rules[d.rule] > maxDisagreements {
				continue
			}
			n = len(found)
			at[key] = n
			found = append(found, Finding{Time: instantOf(d.at), Step: d.step, Rule: d.rule, Detail: d.String(), Evidence: []uint64{}, Proc: d.by, Derived: true})
		}
		counts[n]++
		if len(found[n].Evidence) < maxEvidence {
			found[n].Evidence = append(found[n].Evidence, d.seq)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(counts)) {
		if counts[n] > 1 {
			found[n].Detail += fmt.Sprintf(", %d times", counts[n])
		}
	}
	for i := range found {
		if more := rules[found[i].Rule] - maxDisagreements; more > 0 {
			found[i].Detail += fmt.Sprintf(" (and %d to further destinations are not listed)", more)
			rules[found[i].Rule] = 0
		}
	}
	return found
}

func (d *disagreement) String() string {
	to := d.key.proto + " to " + netip.AddrPortFrom(d.key.dst, uint16(d.key.dstPort)).String()
	switch {
	case d.more != "":
		return d.more
	case d.rule == audit.RuleConnectUnseen:
		return "a process of the guest" + pidText(d.pid) + " claims a connection over " + to + " that the host never saw"
	case d.what == audit.FlowDeny:
		return "the host denied " + to + ", and no process of the guest claims it"
	}
	return "the host saw a flow over " + to + ", and no process of the guest claims it"
}

func pidText(pid int) string {
	if pid == 0 {
		return ""
	}
	return " (pid " + strconv.Itoa(pid) + ")"
}
