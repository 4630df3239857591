package report

import (
	"strings"

	"github.com/custody-project/custody/audit"
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
	q.rules.add(r.Finding.Rule, 1)
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
		q.rules.add(r.Finding.Rule, 1)
	}
}

func (q *findings) end(*source) {}

func (q *findings) claims() []Claim {
	if q.n == 0 {
		return []Claim{none("no finding")}
	}
	return []Claim{q.claim(Contradicts, ByHost, "TO BE LOOKED AT: %s %s (%s). The record does not say whether anybody has.", count(q.n, "finding"), q.runsText(), q.rules)}
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
		q.waiting = append(q.waiting, waiting{r.row.Seq, r.Finding.Action, r.Step + "\x00" + r.Finding.Rule})
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
		claims = append(claims, q.done.claim(Supports, ByHost, "Something was done at once about %s, and the record shows it. Actions that findings name: %s.", count(q.done.n, "finding"), q.actions))
	}
	if q.unseen.n > 0 {
		claims = append(claims, q.unseen.claim(Contradicts, ByHost, "NO EFFECT IS RECORDED of what %s say was done.", count(q.unseen.n, "finding")))
	}
	if q.idle.n > 0 {
		claims = append(claims, q.idle.claim(Lacks, ByHost, "Nothing was stopped by %s: it is for a person to look at them, and the record does not say whether one has.", count(q.idle.n, "finding")))
	}
	if claims == nil {
		claims = append(claims, none("no finding, and so nothing to respond to"))
	}
	return claims
}

// disagreement counts what guest and host tell differently of connections.
type disagreement struct {
	cites
	rules       tallies
	seen, heard uint64
}

// The rules of findings about it; package replay has them.
const (
	ruleUnclaimed = "flow-unclaimed"
	ruleUnseen    = "connect-unseen"
)

func (q *disagreement) see(r *record) {
	switch {
	case r.host(audit.KindFinding) && (r.Finding.Rule == ruleUnclaimed || r.Finding.Rule == ruleUnseen):
		if q.rules == nil {
			q.rules = tallies{}
		}
		q.add(r)
		q.rules.add(r.Finding.Rule, 1)
	case r.host(audit.KindFlow) && r.Flow.State != audit.FlowClose && r.Flow.State != audit.FlowRevoke:
		q.seen++
	case r.readable && r.Kind == audit.KindFlow && r.Flow.State == audit.FlowAttempt:
		q.heard++
	}
}

func (q *disagreement) end(*source) {}

func (q *disagreement) claims() []Claim {
	switch {
	case q.n > 0:
		return []Claim{q.claim(Contradicts, ByBoth, "GUEST AND HOST DISAGREE about connections: %s %s (%s).", count(q.n, "finding"), q.runsText(), q.rules)}
	case q.seen == 0:
		return []Claim{none("the host saw no connection that the guest could claim")}
	}
	c := Claim{Status: Supports, Basis: ByBoth, Total: q.seen + q.heard}
	c.Text = "No finding says that guest and host disagree about connections: the host recorded " + number(q.seen) + ", and the guest's sensor claims " + count(q.heard, "attempt") + "."
	return []Claim{c}
}
