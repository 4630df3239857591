package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// verification has the results of checking each run's signatures, chain and proofs.
type verification struct {
	outcomes []*outcome
	records  uint64
}

// outcome is what verification said in the same words of some runs.
type outcome struct {
	Verification
	cites
	names []string
}

func (q *verification) see(*record) {}

func (q *verification) end(s *source) {
	v := s.Verification
	if v.State == Holds {
		v.Name, v.Number, v.Text = "", 0, ""
		q.records += s.Records
		if !s.proven {
			r := s.run.Verification.Report
			v.State, v.Name = Fails, "records-differ"
			v.Text = fmt.Sprintf("%s were read for this report, and %s were verified", count(s.Records, "record"), number(r.Records))
		}
	}
	o := q.of(v)
	o.names = append(o.names, s.Run)
	if s.class == store.Sandboxes && s.Last > s.first {
		o.keep(s, s.first)
	}
	o.mark(s)
}

func (q *verification) of(v Verification) *outcome {
	for _, o := range q.outcomes {
		if o.State == v.State && o.Name == v.Name && o.Number == v.Number && (v.State == Holds || o.Text == v.Text) {
			return o
		}
	}
	o := &outcome{Verification: v}
	q.outcomes = append(q.outcomes, o)
	return o
}

func (q *verification) claims() []Claim {
	var claims []Claim
	for _, o := range q.outcomes {
		claims = append(claims, q.claim(o))
	}
	return claims
}

func (q *verification) claim(o *outcome) Claim {
	var why string
	if o.Name != "" {
		why = " (" + strings.TrimSuffix(o.Name+" "+fmt.Sprint(o.Number), " 0") + ")"
	}
	if o.Text != "" {
		why += ": " + o.Text
	}
	switch o.State {
	case Holds:
		return o.claim(Supports, ByCheck, "The record of %s holds: signatures, chain and hashes of all %s, from the first to the closing manifest, are right.",
			count(o.n, "run"), count(q.records, "record"))
	case Fails:
		return o.claim(Contradicts, ByCheck, "THE RECORD DOES NOT HOLD%s. Concerned: %s. Nothing in the record of %s is evidence.", why, some(o.names), count(o.n, "such run"))
	case Cannot:
		return o.claim(Lacks, ByCheck, "The record of %s cannot be judged%s. Concerned: %s.", count(o.n, "run"), why, some(o.names))
	}
	return o.claim(Lacks, ByCheck, "The record of %s was not verified%s. Concerned: %s.", count(o.n, "run"), why, some(o.names))
}

// sequence looks for numbers that no record has and no one declared.
type sequence struct {
	next      uint64
	holes     []hole
	declared  []hole
	all, lost cites
	missing   uint64 // declared
	gone      uint64 // not declared
}

type hole struct{ first, last, after uint64 }

func (q *sequence) see(r *record) {
	if r.row.Seq > max(q.next, 1) {
		q.holes = append(q.holes, hole{max(q.next, 1), r.row.Seq - 1, r.row.Seq})
	}
	q.next = max(q.next, r.row.Seq+1)
	if r.host(audit.KindGap) && r.Gap.First > 0 && r.Gap.Last >= r.Gap.First {
		q.declared = append(q.declared, hole{r.Gap.First, r.Gap.Last, r.row.Seq})
		q.all.keep(r.src, r.row.Seq)
	}
}

func (q *sequence) end(s *source) {
	slices.SortFunc(q.declared, func(a, b hole) int { return cmp.Compare(a.first, b.first) })
	q.all.mark(s)
	q.all.n += s.Records - 1
	for _, h := range q.holes {
		left := h.less(q.declared)
		q.missing += h.last - h.first + 1 - left
		if q.gone += left; left > 0 {
			q.lost.n++
			if s.class == store.Sandboxes { // the look behind a hole may be another tenant's
				q.lost.keep(s, h.after)
			} else {
				q.lost.runs = append(q.lost.runs, s)
			}
		}
	}
	q.next, q.holes, q.declared = 0, nil, nil
}

// less returns how many of h are in none of the declared ones, which are in order.
func (h hole) less(declared []hole) (left uint64) {
	at := h.first
	for _, d := range declared {
		if d.last < at || d.first > h.last {
			continue
		}
		if d.first > at {
			left += d.first - at
		}
		if d.last >= h.last {
			return left
		}
		at = d.last + 1
	}
	return left + h.last - at + 1
}

func (q *sequence) claims() []Claim {
	if q.gone > 0 {
		return []Claim{q.lost.claim(Contradicts, ByCheck, "%s ARE MISSING in %s, and no gap declares them. The records cited are those behind the holes.",
			strings.ToUpper(count(q.gone, "sequence number")), count(len(distinct(q.lost.runs)), "run"))}
	}
	if q.missing > 0 {
		return []Claim{q.all.claim(Supports, ByHost, "The sequence numbers of %s have no hole but for %s that gap records declare as lost.",
			count(q.all.n, "record"), number(q.missing))}
	}
	return []Claim{q.all.claim(Supports, ByHost, "The sequence numbers of %s in %s have no hole.", count(q.all.n, "record"), count(len(distinct(q.all.runs)), "run"))}
}

func distinct(runs []*source) []*source {
	var list []*source
	for _, s := range runs {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// losses are those that gap records declare.
type losses struct {
	cites
	unseen        cites // declarations of what the isolation tier does not observe
	all           cites // the last record of each run
	events, guest uint64
	bytes         int64
	stages        tallies
}

func newLosses() *losses { return &losses{stages: tallies{}} }

func (q *losses) see(r *record) {
	if !r.readable || r.Kind != audit.KindGap {
		return
	}
	if r.tierLacks() {
		q.unseen.add(r)
		return
	}
	q.add(r)
	q.events += r.Gap.Count
	q.bytes += max(r.Gap.Bytes, 0)
	q.stages.add(string(r.Gap.Stage), 1)
	if r.Observer != audit.Host {
		q.guest++
	}
}

func (q *losses) end(s *source) { q.all.mark(s); q.all.n += s.Records - 1 }

func (q *losses) claims() []Claim {
	var claims []Claim
	if q.unseen.n > 0 {
		claims = append(claims, q.unseen.claim(Lacks, ByHost, "The isolation tier of %s does not observe everything. What is not in the record is stated by %s.",
			count(len(q.unseen.runs), "run"), count(q.unseen.n, "gap record")))
	}
	if q.n == 0 {
		return append(claims, q.all.claim(Supports, ByBoth, "None of %s declares a loss.", count(q.all.n, "record")))
	}
	basis := ByHost
	if q.guest > 0 {
		basis = ByBoth
	}
	return append(claims, q.claim(Contradicts, basis, "LOSSES ARE DECLARED by %s %s: %s and %s are not in the record; by stage: %s. The guest's own claims among them: %s.",
		count(q.n, "gap record"), q.runsText(), count(q.events, "event"), bytesText(uint64(q.bytes)), q.stages, number(q.guest)))
}

// closed counts how runs began and ended.
type closed struct {
	done, bad, open cites
	began, over     bool
	words           tallies
}

func (q *closed) see(r *record) {
	if !r.host(audit.KindRun) {
		return
	}
	if r.Lifecycle.Phase == audit.PhaseStart {
		q.began = true
		q.done.keep(r.src, r.row.Seq)
		return
	}
	q.over = true
	switch r.Lifecycle.Status {
	case audit.StatusInterrupted, audit.StatusFailed:
		q.bad.add(r)
	default:
		q.done.add(r)
		q.words.add(string(r.Lifecycle.Status), 1)
	}
}

func (q *closed) end(s *source) {
	if !q.began || !q.over {
		q.open.n++
		q.open.runs = append(q.open.runs, s)
	}
	q.began, q.over = false, false
}

func (q *closed) claims() []Claim {
	var claims []Claim
	if q.done.n > 0 {
		claims = append(claims, q.done.claim(Supports, ByHost, "A start and an end are recorded of %s (%s).", count(q.done.n, "run"), q.words))
	}
	if q.bad.n > 0 {
		claims = append(claims, q.bad.claim(Contradicts, ByHost,
			"NOT ENDED IN ORDER: %s. Custody or the VM died, or Custody could not carry the run out; the last of what was done may not be in the record.", count(q.bad.n, "run")))
	}
	if q.open.n > 0 {
		claims = append(claims, q.open.claim(Lacks, ByHost, "No end, or no start, is recorded of %s: it was going on, or the record is cut.", count(q.open.n, "run")))
	}
	return claims
}

// published tells which runs the host's log has.
type published struct {
	in, out, tail  cites
	covered, young uint64
}

func (q *published) see(*record) {}

func (q *published) end(s *source) {
	if s.Log == nil {
		q.out.mark(s)
		return
	}
	q.in.mark(s)
	q.covered += s.Log.Covered
	if q.young += s.Log.Tail; s.Log.Tail > 0 {
		q.tail.mark(s)
	}
}

// mark cites a run by its last record, an access log by its first: the last can be about
// another tenant.
func (c *cites) mark(s *source) {
	c.n++
	switch {
	case s.Last == 0 || s.class == store.Accesses && s.first == 0:
		c.runs = append(c.runs, s)
	case s.class == store.Accesses:
		c.keep(s, s.first)
	default:
		c.keep(s, s.Last)
	}
}

func (q *published) claims() []Claim {
	var claims []Claim
	if q.in.n > 0 {
		claims = append(claims, q.in.claim(Supports, ByCheck, "The manifests of %s stand in their host's append-only log; its signed checkpoint covers %s.", count(q.in.n, "run"), count(q.covered, "record")))
	}
	if q.out.n > 0 {
		claims = append(claims, q.out.claim(Lacks, ByCheck, "It was not established whether the host's log has %s.", count(q.out.n, "run")))
	}
	if q.tail.n > 0 {
		claims = append(claims, q.tail.claim(Lacks, ByCheck, "Younger than the checkpoint: %s in %s. Nothing outside the host attests to them yet.", count(q.young, "record"), count(q.tail.n, "run")))
	}
	return claims
}

// witnessed reports whether witnesses have cosigned the host's log.
type witnessed struct {
	by, alone cites
	names     tallies
}

func (q *witnessed) see(*record) {}

func (q *witnessed) end(s *source) {
	if s.Log == nil || len(s.Log.Witnesses) == 0 {
		q.alone.mark(s)
		return
	}
	q.by.mark(s)
	for _, w := range s.Log.Witnesses {
		q.names.add(w, 1)
	}
}

func (q *witnessed) claims() []Claim {
	var claims []Claim
	if q.by.n > 0 {
		claims = append(claims, q.by.claim(Supports, ByCheck, "Witnesses other than the host have cosigned the checkpoint over %s: %s.", count(q.by.n, "run"), some(q.names.names())))
	}
	if q.alone.n > 0 {
		claims = append(claims, q.alone.claim(Lacks, ByCheck, "No witness that is trusted here is known to have cosigned a checkpoint over %s: a holder of the host's key could write another history.", count(q.alone.n, "run")))
	}
	return claims
}

// stamped reports whether a time-stamping authority has stamped the log.
type stamped struct {
	by, without cites
	latest      time.Time
}

func (q *stamped) see(*record) {}

func (q *stamped) end(s *source) {
	if s.Log == nil || s.Log.Stamp == nil {
		q.without.mark(s)
		return
	}
	q.by.mark(s)
	if s.Log.Stamp.After(q.latest) {
		q.latest = *s.Log.Stamp
	}
}

func (q *stamped) claims() []Claim {
	var claims []Claim
	if q.by.n > 0 {
		claims = append(claims, q.by.claim(Supports, ByCheck, "A time-stamping authority attests that the checkpoint over %s existed at %s.", count(q.by.n, "run"), instant(q.latest)))
	}
	if q.without.n > 0 {
		claims = append(claims, q.without.claim(Lacks, ByCheck, "No time-stamping authority is known to attest when %s took place.", count(q.without.n, "run")))
	}
	return claims
}
