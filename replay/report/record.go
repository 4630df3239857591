package report

import (
	"time"

	"github.com/custody-project/custody/audit"
)

// content looks at the envelope of every record.
type content struct {
	kinds          tallies
	shown          map[audit.Kind]bool
	good, bad      cites
	guest, ofSteps uint64
}

func newContent() *content { return &content{kinds: tallies{}, shown: map[audit.Kind]bool{}} }

func (q *content) see(r *record) {
	switch {
	case r.row.Erased != nil:
		return
	case !r.readable || r.Time.IsZero() || r.Observer != audit.Host && r.Observer != audit.Guest:
		q.bad.add(r)
		return
	}
	q.good.n++
	q.kinds.add(string(r.Kind), 1)
	if r.Observer == audit.Guest {
		q.guest++
	}
	if r.Step != "" {
		q.ofSteps++
	}
	if !q.shown[r.Kind] {
		q.shown[r.Kind] = true
		q.good.keep(r.src, r.row.Seq)
	}
}

func (q *content) end(s *source) { q.good.runs = append(q.good.runs, s) }

func (q *content) claims() []Claim {
	var claims []Claim
	if q.good.n > 0 {
		claims = append(claims, q.good.claim(Supports, ByBoth,
			"Each of %s says when, in which run and place, of which kind, and who saw it: %s the host, %s the guest's sensor, whose word is a claim. %s belong to a named step. By kind: %s.",
			count(q.good.n, "record"), number(q.good.n-q.guest), number(q.guest), number(q.ofSteps), q.kinds))
	}
	if q.bad.n > 0 {
		claims = append(claims, q.bad.claim(Contradicts, ByCheck, "NOT READABLE, or without a time or an observer: %s.", count(q.bad.n, "record")))
	}
	return claims
}

// clock looks at the times of records.
type clock struct {
	all, back cites
	latest    time.Time
	offset    time.Duration
	worst     time.Duration
}

// late is how much earlier than a record ahead of it a record may say to be without a word.
// Records are made by several parts of Custody, and reach the log within milliseconds.
const late = time.Second

func (q *clock) see(r *record) {
	if !r.readable {
		return
	}
	q.all.n++
	if r.Guest != nil {
		q.offset = max(q.offset, time.Duration(r.Guest.OffsetNS).Abs())
	}
	if behind := q.latest.Sub(r.Time); behind > late && r.Kind != audit.KindVM { // a freeze is written at the thaw
		q.back.add(r)
		q.worst = max(q.worst, behind)
	}
	if r.Time.After(q.latest) {
		q.latest = r.Time
	}
}

func (q *clock) end(s *source) {
	q.latest = time.Time{}
	q.all.mark(s)
	q.all.n--
}

func (q *clock) claims() []Claim {
	claims := []Claim{q.all.claim(Supports, ByHost,
		"The time in %s is that of their host's clock, in UTC. The guest's own clock, at most %s from it, stands in a field of its own and decides nothing.",
		count(q.all.n, "record"), span(q.offset))}
	if q.back.n > 0 {
		claims = append(claims, q.back.claim(Lacks, ByHost,
			"In %s stands a time more than %s before that of a record ahead, at worst by %s: it came late, or the host's clock was set back.",
			count(q.back.n, "record"), span(late), span(q.worst)))
	}
	return claims
}

// retained asks how far back the record goes.
type retained struct {
	cites
	months int
	now    time.Time
	oldest *source
}

func (q *retained) see(*record) {}

func (q *retained) end(s *source) {
	if q.oldest == nil || s.Start.Before(q.oldest.Start) {
		q.oldest = s
		q.cites = cites{}
		q.mark(s)
	}
}

func (q *retained) claims() []Claim {
	s := q.oldest
	age := span(max(q.now.Sub(s.Start), 0))
	if !s.Start.After(q.now.AddDate(0, -q.months, 0)) {
		return []Claim{q.claim(Supports, ByCheck, "The oldest of these runs began at %s, %s before this report, and all of its %s are still there.",
			instant(s.Start), age, count(s.Records, "record"))}
	}
	return []Claim{q.claim(Lacks, ByCheck, "The oldest of these runs began at %s, %s before this report: nothing here shows that records are kept for %s.",
		instant(s.Start), age, count(q.months, "month"))}
}

// erased counts records that were erased.
type erased struct{ gone, unsaid, asked cites }

func (q *erased) see(r *record) {
	if r.row.Erased == nil {
		return
	}
	if r.src.stated(r.row.Seq) {
		q.gone.add(r)
		return
	}
	q.unsaid.add(r)
}

// stated reports whether verification has found a signed statement about an erased record.
func (s *source) stated(seq uint64) bool {
	if s.run.Verification.Report == nil {
		return false
	}
	for _, e := range s.run.Verification.Report.Erasures {
		if e.Seq == seq {
			return true
		}
	}
	return false
}

func (q *erased) end(s *source) {
	if r := s.run.Verification.Report; r != nil {
		for _, e := range r.Asked {
			q.asked.n++
			q.asked.keep(s, e.Seq)
		}
	}
}

func (q *erased) claims() []Claim {
	var claims []Claim
	if q.gone.n > 0 {
		claims = append(claims, q.gone.claim(Supports, ByCheck,
			"What %s said is erased. A signed statement for each says who asked for it and why; their places and hashes stay, so that the rest still verifies.", count(q.gone.n, "record")))
	}
	if q.unsaid.n > 0 {
		claims = append(claims, q.unsaid.claim(Lacks, ByCheck, "No signed statement has been established about %s.", count(q.unsaid.n, "erased record")))
	}
	if q.asked.n > 0 {
		claims = append(claims, q.asked.claim(Contradicts, ByCheck, "STILL THERE, although a signed statement says that it is erased: %s.", count(q.asked.n, "record")))
	}
	if claims == nil {
		claims = append(claims, none("nothing was erased"))
	}
	return claims
}

// onFailure reports what a run does when its record cannot be written, and whether that happened.
type onFailure struct {
	strict, lax, froze cites
	frozen             time.Duration
}

func (q *onFailure) see(r *record) {
	switch {
	case r.host(audit.KindRun) && r.Lifecycle.Phase == audit.PhaseStart && r.Lifecycle.Mode == "strict":
		q.strict.add(r)
	case r.host(audit.KindRun) && r.Lifecycle.Phase == audit.PhaseStart:
		q.lax.add(r)
	case r.host(audit.KindVM) && r.VM.Op == "freeze":
		q.froze.add(r)
	case r.host(audit.KindVM) && r.VM.Op == "thaw":
		q.froze.keep(r.src, r.row.Seq)
		q.frozen += time.Duration(r.VM.DurationNS)
	}
}

func (q *onFailure) end(*source) {}

func (q *onFailure) claims() []Claim {
	var claims []Claim
	if q.strict.n > 0 {
		claims = append(claims, q.strict.claim(Supports, ByHost,
			"Strict mode was in force in %s: when the record cannot be written the VM is frozen, and nothing is let out.", count(q.strict.n, "run")))
	}
	if q.lax.n > 0 {
		claims = append(claims, q.lax.claim(Lacks, ByHost,
			"Degrade mode, or none that the record names, was in force in %s: work goes on there when the record cannot be written.", count(q.lax.n, "run")))
	}
	if q.froze.n > 0 {
		claims = append(claims, q.froze.claim(Supports, ByHost, "The VM was frozen %s because something could not be written, for %s in all, and the record says so.",
			count(q.froze.n, "time"), span(q.frozen)))
	}
	if claims == nil {
		claims = append(claims, none("no run says how it was recorded"))
	}
	return claims
}
