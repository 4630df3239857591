package report

import (
	"slices"
	"strings"

	"github.com/custody-project/custody/audit"
)

// policies follows the policy of each run through its changes.
type policies struct {
	all, changed, broken, without cites
	digests                       tallies
	promised, current             string // digests: at the run's start, and in force
	generation                    uint32
	began                         uint64
}

func newPolicies() *policies { return &policies{digests: tallies{}} }

func (q *policies) see(r *record) {
	if r.host(audit.KindRun) && r.Lifecycle.Phase == audit.PhaseStart {
		q.promised, q.began = r.Lifecycle.PolicyDigest, r.row.Seq
	}
	if !r.host(audit.KindPolicy) {
		return
	}
	p := r.Policy
	q.all.add(r)
	q.digests.add(p.Digest, 1)
	switch {
	case q.generation == 0 && q.promised != "" && p.Digest != q.promised, q.generation > 0 && p.Previous != q.current,
		p.Generation <= q.generation:
		q.broken.add(r)
	case q.generation > 0:
		q.changed.add(r)
	}
	q.current, q.generation = p.Digest, p.Generation
}

func (q *policies) end(s *source) {
	if q.generation == 0 && q.began > 0 {
		q.without.n++
		q.without.keep(s, q.began)
	}
	q.promised, q.current, q.generation, q.began = "", "", 0, 0
}

func (q *policies) claims() []Claim {
	var claims []Claim
	if q.all.n > 0 {
		claims = append(claims, q.all.claim(Supports, ByHost, "The policy in force is recorded with its rules and digest %s, in %s; digests: %s.",
			q.all.runsText(), count(q.all.n, "record"), some(q.digests.names())))
		claims = append(claims, q.constancy())
	}
	if q.broken.n > 0 {
		claims = append(claims, q.broken.claim(Contradicts, ByHost, "A POLICY DOES NOT FOLLOW from the one before, or is not the one that its run began with: %s.", count(q.broken.n, "record")))
	}
	if q.without.n > 0 {
		claims = append(claims, q.without.claim(Lacks, ByHost, "No policy is recorded of %s.", count(q.without.n, "run")))
	}
	if claims == nil {
		claims = append(claims, none("no policy"))
	}
	return claims
}

func (q *policies) constancy() Claim {
	if q.changed.n == 0 {
		return q.all.claim(Supports, ByHost, "The policy was not changed while a run was going on, in any of %s.", count(len(q.all.runs), "run"))
	}
	return q.changed.claim(Supports, ByHost, "The policy was changed %s while a run was going on, %s. Each change is recorded with the digests before and after; who made it is not.",
		count(q.changed.n, "time"), q.changed.runsText())
}

// ruling is what three kinds of records have alike.
type ruling struct {
	audit.Verdict
	rule, reason string
	generation   uint32
}

// rulingOf returns false for what is no enforcer's verdict.
func rulingOf(r *record) (ruling, bool) {
	switch {
	case r.host(audit.KindFlow):
		return ruling{r.Flow.Verdict, r.Flow.Rule, r.Flow.Reason, r.Flow.Generation}, r.Flow.State != audit.FlowAttempt
	case r.host(audit.KindDNS):
		return ruling{r.DNS.Verdict, r.DNS.Rule, r.DNS.Reason, r.DNS.Generation}, true
	case r.host(audit.KindHTTP):
		return ruling{r.HTTP.Verdict, r.HTTP.Rule, r.HTTP.Reason, r.HTTP.Generation}, true
	}
	return ruling{}, false
}

// allowed holds what was let out against the rules of the policy in force.
type allowed struct {
	good, bad cites
	rules     map[uint32][]audit.Text // by generation
	kinds     tallies
	used      tallies
}

func newAllowed() *allowed {
	return &allowed{rules: map[uint32][]audit.Text{}, kinds: tallies{}, used: tallies{}}
}

func (q *allowed) see(r *record) {
	if r.host(audit.KindPolicy) {
		q.rules[r.Policy.Generation] = r.Policy.Rules
	}
	v, ok := rulingOf(r)
	if !ok || v.Verdict != audit.Allow || r.Kind == audit.KindFlow && r.Flow.State != audit.FlowOpen {
		return
	}
	if !slices.Contains(q.rules[v.generation], audit.Text(v.rule)) {
		q.bad.add(r)
		return
	}
	q.good.add(r)
	q.kinds.add(string(r.Kind), 1)
	q.used.add(v.rule, 1)
}

func (q *allowed) end(*source) { clear(q.rules) }

func (q *allowed) claims() []Claim {
	if q.good.n+q.bad.n == 0 {
		return []Claim{none("nothing was let out")}
	}
	var claims []Claim
	if q.good.n > 0 {
		claims = append(claims, q.good.claim(Supports, ByHost, "Each of %s that were let out (%s) names a rule which the policy in force at the time lists; rules used: %s.",
			countAs(q.good.n, "connection, question or request", "connections, questions and requests"), q.kinds, number(len(q.used))))
	}
	if q.bad.n > 0 {
		claims = append(claims, q.bad.claim(Contradicts, ByHost, "LET OUT WITHOUT A RULE of the policy in force: %s.", countAs(q.bad.n, "connection, question or request", "connections, questions and requests")))
	}
	return claims
}

// denied counts what was not let out.
type denied struct {
	good, bare     cites
	kinds, reasons tallies
}

func (q *denied) see(r *record) {
	v, ok := rulingOf(r)
	if !ok || v.Verdict != audit.Deny || r.Kind == audit.KindFlow && r.Flow.State != audit.FlowDeny {
		return
	}
	if q.kinds == nil {
		q.kinds, q.reasons = tallies{}, tallies{}
	}
	if v.rule == "" {
		q.bare.add(r)
		return
	}
	q.good.add(r)
	q.kinds.add(string(r.Kind), 1)
	q.reasons.add(v.reason, 1)
}

func (q *denied) end(*source) {}

func (q *denied) claims() []Claim {
	if q.good.n+q.bare.n == 0 {
		return []Claim{none("nothing was denied, and nothing shows what would have been")}
	}
	var claims []Claim
	if q.good.n > 0 {
		claims = append(claims, q.good.claim(Supports, ByHost, "Recorded %s: %s (%s), each with the rule that decided, or with \"default\" where none names the destination. Reasons: %s.",
			q.good.runsText(), count(q.good.n, "denial"), q.kinds, q.reasons))
	}
	if q.bare.n > 0 {
		claims = append(claims, q.bare.claim(Lacks, ByHost, "Without the rule that decided: %s.", count(q.bare.n, "denial")))
	}
	return claims
}

// revokedFlows counts flows that a change of the policy ended.
type revokedFlows struct{ cites }

func (q *revokedFlows) see(r *record) {
	if r.host(audit.KindFlow) && r.Flow.State == audit.FlowRevoke {
		q.add(r)
	}
}

func (q *revokedFlows) end(*source) {}

func (q *revokedFlows) claims() []Claim {
	if q.n == 0 {
		return []Claim{none("no change of a policy ended a connection")}
	}
	return []Claim{q.claim(Supports, ByHost, "Ended while open, as the policy no longer allowed it, %s: %s. The record says how much was carried until then.",
		q.runsText(), count(q.n, "connection"))}
}

// recipients lists where data went.
type recipients struct {
	cites
	hosts   tallies
	in, out uint64
}

func newRecipients() *recipients { return &recipients{hosts: tallies{}} }

func (q *recipients) see(r *record) {
	if !r.host(audit.KindFlow) || r.Flow.Verdict != audit.Allow && r.Flow.State != audit.FlowRevoke {
		return
	}
	switch r.Flow.State {
	case audit.FlowOpen:
		q.add(r)
		name := strings.ToLower(string(r.Flow.Name))
		if name == "" {
			name = r.Flow.DstIP
		}
		q.hosts.add(name, 1)
	case audit.FlowClose, audit.FlowRevoke:
		q.in += r.Flow.BytesIn
		q.out += r.Flow.BytesOut
	}
}

func (q *recipients) end(*source) {}

func (q *recipients) claims() []Claim {
	if q.n == 0 {
		return []Claim{none("no connection was opened to any host")}
	}
	return []Claim{q.claim(Supports, ByHost, "Data went to and came from %s, by %s %s; %s out and %s in, headers included. Openings by host: %s.",
		count(len(q.hosts), "host"), count(q.n, "opening"), q.runsText(), bytesText(q.out), bytesText(q.in), q.hosts)}
}

// probes sums up the red team's attempts.
type probes struct{ stopped, out, controls cites }

func (q *probes) see(r *record) {
	if !r.host(audit.KindProbe) {
		return
	}
	control := strings.HasPrefix(r.Probe.Name, "control/")
	switch {
	case control && !r.Probe.Blocked && r.Probe.Recorded:
		q.controls.add(r)
	case !control && r.Probe.Blocked && r.Probe.Recorded:
		q.stopped.add(r)
	default:
		q.out.add(r)
	}
}

func (q *probes) end(*source) {}

func (q *probes) claims() []Claim {
	var claims []Claim
	if q.stopped.n > 0 {
		claims = append(claims, q.stopped.claim(Supports, ByHost, "Attempts of the red team's to get out that were blocked and recorded: %s. What had to get through did: %s.",
			number(q.stopped.n), count(q.controls.n, "control")))
	}
	if q.out.n > 0 {
		claims = append(claims, q.out.claim(Contradicts, ByHost, "OF THE RED TEAM'S ATTEMPTS %s got out, or were not recorded, or were controls that failed.", number(q.out.n)))
	}
	if claims == nil {
		claims = append(claims, none("no attempt of custody redteam's"))
	}
	return claims
}
