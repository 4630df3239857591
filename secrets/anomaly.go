package secrets

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/custody-project/custody/audit"
)

const (
	// answerTime bounds how long the finding of an anomaly waits for the broker's confirmation.
	answerTime = time.Second
	// findingTime bounds how long the action after a finding waits for its record.
	findingTime = 500 * time.Millisecond
)

// sighting is a secret that occurred out of scope. Each has one finding. Their number is at most leases times secrets
// times rules, so the set needs no other limit.
type sighting struct {
	lease  *Lease // of the secret
	secret string
	rule   audit.Rule
}

// Saw reports the secrets that were masked in a record of a kind, by the redactor's names of their values. Printed
// reports those in streams, in which the redactor also counts markers. A secret in a DNS query, an output or a flow is
// an anomaly; in an argv or a path it need not be. Saw never blocks; when it returns the credentials can no longer be
// used on the host's side.
func (i *Issuer) Saw(kind audit.Kind, step string, names []string, seq uint64) {
	rules := map[audit.Kind]audit.Rule{audit.KindDNS: audit.RuleSecretInDNS, audit.KindOutput: audit.RuleSecretInOutput, audit.KindFlow: audit.RuleSecretInFlow}
	rule, ok := rules[kind]
	if !ok {
		return
	}
	for _, name := range names {
		b, ok := i.bindings[name]
		if !ok || kind == audit.KindOutput && b.Deliver == (Deliver{}) { // the secret is only to be masked
			continue
		}
		name = i.twin(name, step)
		i.report(i.owner(name, step), name, rule, seq, "it is in a record of the kind "+string(kind)+", masked")
	}
}

// Presented reports that a secret or its placeholder is about to be sent to a host, and returns whether that is in
// scope. It never blocks; if it is out of scope, the credentials can no longer be used on the host's side when it
// returns. It ignores a placeholder that is sent to a host of its rules.
func (i *Issuer) Presented(_ context.Context, secret, host, where string, seq uint64) (inScope bool) {
	b, ok := i.bindings[secret]
	if !ok || slices.ContainsFunc(i.values.alike(secret), func(name string) bool { return i.permits(name, host) }) {
		return true
	}
	rule := audit.RuleSecretToOtherHost
	if b.Deliver.Header != "" {
		rule = audit.RulePlaceholderToOtherHost
	}
	detail := cut(fmt.Sprintf("it was about to be sent to %s, in %s", host, where))
	i.report(i.owner(secret, ""), secret, rule, seq, detail)
	return false
}

// Echoed reports that a host sent a secret's value or placeholder after the end of a response. It never blocks; when it
// returns the credentials can no longer be used on the host's side.
func (i *Issuer) Echoed(secret, host string, seq uint64) {
	if _, ok := i.bindings[secret]; ok {
		i.report(i.owner(secret, ""), secret, audit.RuleSecretAfterAnswer, seq, cut(host+" sent it beyond the end of an answer"))
	}
}

// permits reports whether the current step may send the secret to host.
func (i *Issuer) permits(name, host string) bool {
	b := i.bindings[name]
	if b.Deliver.Header != "" {
		return false
	}
	l := i.owner(name, "")
	if l == nil { // no step has it: it is only masked, and there is no lease to revoke
		return b.Deliver == (Deliver{}) && (b.Hosts == nil || b.Hosts(host))
	}
	return !l.after() && (b.Hosts == nil || b.Hosts(host))
}

// twin returns the secret with the same value as name's that the step has: the redactor has only one name for a value.
func (i *Issuer) twin(name, step string) string {
	for _, n := range i.values.alike(name) {
		if l := i.owner(n, step); l != nil && !l.after() {
			return n
		}
	}
	return name
}

// owner returns the lease of a secret: of the step in which it occurred, or else of a running step, or else the last one
// with the secret.
func (i *Issuer) owner(secret, step string) *Lease {
	i.mu.Lock()
	defer i.mu.Unlock()
	if l := i.steps[step]; l != nil && l.binds(secret) {
		return l
	}
	for _, l := range slices.Backward(i.leases) {
		if l.binds(secret) && !l.after() {
			return l
		}
	}
	return i.bound[secret]
}

func (l *Lease) binds(secret string) bool {
	_, ok := l.bindings[secret]
	return ok
}

// misused handles a misuse that the broker has reported.
func (i *Issuer) misused(l *Lease, h *held, what string) {
	name := h.names[0]
	if at := slices.IndexFunc(h.names, func(n string) bool { return l.bindings[n].Deliver.Token != "" }); at >= 0 {
		name = h.names[at]
	}
	i.report(l, name, audit.RuleTokenMisuse, 0, cut(what))
}

// report revokes the credentials of the lease, and starts a goroutine that records the finding.
func (i *Issuer) report(l *Lease, secret string, rule audit.Rule, seq uint64, detail string) {
	action := i.cfg.Action
	if l != nil && !l.after() {
		l.kill(errAnomalous(rule, detail))
	} else {
		if l != nil && rule != audit.RuleTokenMisuse {
			rule = audit.RuleSecretAfterStep
		}
		if action == "revoke" {
			action = "" // no credential was alive
		}
	}
	s := sighting{l, secret, rule}
	i.mu.Lock()
	seen := i.reported[s]
	i.reported[s] = true
	i.mu.Unlock()
	if !seen {
		i.start(func() {
			i.answer(s, audit.Finding{Rule: rule, Secret: secret, Seq: seq, Detail: detail, Action: action})
		})
	}
}

// answer records the finding, after the revocation if the broker is fast enough, and then freezes or ends the run.
func (i *Issuer) answer(s sighting, f audit.Finding) {
	step := ""
	if s.lease != nil {
		step = s.lease.step
		ctx, cancel := context.WithTimeout(i.ctx, answerTime)
		defer cancel()
		if err := s.lease.settle(ctx); err != nil {
			f.Detail = cut(f.Detail + "; " + err.Error())
		}
	}
	reason := fmt.Sprintf("%s: the secret %s: %s", f.Rule, f.Secret, f.Detail)
	ctx, cancel := context.WithTimeout(i.ctx, findingTime)
	defer cancel()
	ev := audit.Event{Kind: audit.KindFinding, Step: step, Finding: &f}
	err := i.journal.post(ctx, ev)
	if i.cfg.Act != nil && f.Action != "" {
		i.cfg.Act(i.ctx, f.Action, reason)
	}
	if err != nil { // the record is stalled: wait for it
		_ = i.journal.post(i.ctx, ev)
	}
}
