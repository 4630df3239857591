package report

import (
	"errors"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay"
)

// detection counts findings as what monitoring has found.
type detection struct {
	cites
	rules tallies
	cited uint64
}

func newDetection() *detection { return &detection{rules: tallies{}} }

func (q *detection) see(r *record) {
	if !r.host(audit.KindFinding) {
		return
	}
	q.add(r)
	q.rules.add(string(r.Finding.Rule), 1)
	if r.Finding.Seq > 0 {
		q.cited++
	}
}

func (q *detection) end(*source) {}

func (q *detection) claims() []Claim {
	if q.n == 0 {
		return []Claim{none("no anomaly was found, which does not say that there was none")}
	}
	return []Claim{q.claim(Supports, ByHost, "Anomalies were found and recorded as they happened: %s %s (%s); the record that shows it is named by %s.",
		count(q.n, "finding"), q.runsText(), q.rules, number(q.cited))}
}

// findings counts the same as what a reviewer has to look at.
type findings struct {
	cites
	rules tallies
}

func newFindings() *findings { return &findings{rules: tallies{}} }

func (q *findings) see(r *record) {
	if r.host(audit.KindFinding) {
		q.add(r)
		q.rules.add(string(r.Finding.Rule), 1)
	}
}

func (q *findings) end(*source) {}

func (q *findings) claims() []Claim {
	if q.n == 0 {
		return []Claim{none("no finding")}
	}
	return []Claim{q.claim(Contradicts, ByHost, "TO BE LOOKED AT: %s %s (%s). The record does not show whether anyone has.", count(q.n, "finding"), q.runsText(), q.rules)}
}

// response looks what was done about findings.
type response struct {
	done, idle, unseen cites
	actions            tallies
	revoked            map[string]bool // rules of findings that a revocation of the step names, with the step
	froze              bool
	waiting            []waiting // findings whose action has not been seen yet
}

type waiting struct {
	seq            uint64
	action, effect string
}

func newResponse() *response { return &response{actions: tallies{}, revoked: map[string]bool{}} }

func (q *response) see(r *record) {
	switch {
	case r.host(audit.KindSecret) && r.Secret.Op == audit.SecretRevoke:
		rule, _, _ := strings.Cut(r.Secret.Reason, ":")
		q.revoked[r.Step+"\x00"+rule] = true
	case r.host(audit.KindVM) && r.VM.Op == "freeze":
		q.froze = true
	case r.host(audit.KindFinding) && r.Finding.Action == "":
		q.idle.add(r)
	case r.host(audit.KindFinding):
		q.actions.add(r.Finding.Action, 1)
		q.waiting = append(q.waiting, waiting{r.row.Seq, r.Finding.Action, r.Step + "\x00" + string(r.Finding.Rule)})
	}
}

// end looks for the effects: a revocation can be recorded before or after its finding.
func (q *response) end(s *source) {
	for _, w := range q.waiting {
		c := &q.done
		if w.action == "revoke" && !q.revoked[w.effect] || w.action == "freeze" && !q.froze || w.action == "end" && !s.ended {
			c = &q.unseen
		}
		c.n++
		c.keep(s, w.seq)
	}
	q.waiting, q.froze = nil, false
	clear(q.revoked)
}

func (q *response) claims() []Claim {
	var claims []Claim
	if q.done.n > 0 {
		claims = append(claims, q.done.claim(Supports, ByHost, "Custody acted immediately on %s, and the record shows it. Actions that findings name: %s.", count(q.done.n, "finding"), q.actions))
	}
	if q.unseen.n > 0 {
		claims = append(claims, q.unseen.claim(Contradicts, ByHost, "NO EFFECT IS RECORDED of what was done according to %s.", count(q.unseen.n, "finding")))
	}
	if q.idle.n > 0 {
		claims = append(claims, q.idle.claim(Lacks, ByHost, "Nothing was stopped by %s: that is for a person to look at, and the record does not say whether one has.", count(q.idle.n, "finding")))
	}
	if claims == nil {
		claims = append(claims, none("no finding, and so nothing to respond to"))
	}
	return claims
}

// disagreement holds what the guest claims of connections against what the host saw. A run's
// record has the findings, if the version of Custody that made it looked; else they are made now.
type disagreement struct {
	recorded, derived cites
	all               cites // the last record of each run with connections
	rules             tallies
	seen, heard       uint64
	tried             uint64 // attempts that the host observed
	said, some        bool   // of the run
}

func (q *disagreement) see(r *record) {
	switch {
	case r.host(audit.KindFinding) && (r.Finding.Rule == audit.RuleFlowUnclaimed || r.Finding.Rule == audit.RuleConnectUnseen):
		q.recorded.add(r)
		q.rules.add(string(r.Finding.Rule), 1)
		q.said = true
	case r.host(audit.KindFlow) && r.Flow.State == audit.FlowAttempt:
		q.tried++
		q.some = true
	case r.host(audit.KindFlow) && r.Flow.State != audit.FlowClose && r.Flow.State != audit.FlowRevoke:
		q.seen++
		q.some = true
	case r.readable && r.Kind == audit.KindFlow && r.Flow.State == audit.FlowAttempt:
		q.heard++
		q.some = true
	}
}

func (q *disagreement) end(s *source) {
	if q.some {
		q.all.mark(s)
	}
	if q.some && !q.said {
		q.derive(s)
	}
	q.said, q.some = false, false
}

func (q *disagreement) derive(s *source) {
	list, err := replay.Disagreements(s.rows())
	s.err = errors.Join(s.err, err)
	for _, f := range list {
		q.derived.n++
		q.rules.add(string(f.Rule), 1)
		for _, seq := range f.Evidence {
			q.derived.keep(s, seq)
		}
	}
}

func (q *disagreement) claims() []Claim {
	var claims []Claim
	if q.recorded.n > 0 {
		claims = append(claims, q.recorded.claim(Contradicts, ByBoth, "GUEST AND HOST DISAGREE about connections: %s %s. By rule, in all runs: %s.",
			count(q.recorded.n, "finding"), q.recorded.runsText(), q.rules))
	}
	if q.derived.n > 0 {
		claims = append(claims, q.derived.claim(Contradicts, ByBoth, "GUEST AND HOST DISAGREE about connections, as found for this report and not recorded as findings: %s %s. By rule, in all runs: %s.",
			count(q.derived.n, "disagreement"), q.derived.runsText(), q.rules))
	}
	switch {
	case claims != nil:
		return claims
	case q.seen+q.heard+q.tried == 0:
		return []Claim{none("no connection, neither seen nor claimed")}
	case q.tried > 0 && q.heard == 0:
		return []Claim{q.all.claim(Supports, ByHost, "The host observed the connections of processes itself: %s, and %s. No guest claims a connection that it could contradict.",
			count(q.tried, "attempt"), countAs(q.seen, "beginning or denial", "beginnings and denials"))}
	}
	return []Claim{q.all.claim(Supports, ByBoth, "Guest and host do not disagree about connections: the host recorded %s, and the guest's sensor claims %s.",
		countAs(q.seen, "beginning or denial", "beginnings and denials"), count(q.heard, "attempt"))}
}
