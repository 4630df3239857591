package redteam

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/custody-project/custody/audit"
)

// about is a probe with the guest's report and the record of its run.
type about struct {
	*Probe
	said    report
	records []audit.Record
	flows   map[string]bool // IDs of the probe's flows
}

// gather finds the IDs of the probe's flows.
func (b *about) gather() {
	b.flows = map[string]bool{}
	for i := range b.records {
		if f := b.records[i].Flow; f != nil && f.ID != "" && b.mine(f) {
			b.flows[f.ID] = true
		}
	}
}

// find returns the first record that accounts for the probe's outcome.
func (b *about) find() *audit.Record {
	for i := range b.records {
		if b.proof(b, &b.records[i]) {
			return &b.records[i]
		}
	}
	return nil
}

// mine reports whether a flow is the probe's. It is if a name in it has the token, if both its ends are those that the
// guest reported, or, without such a report, if no other probe has its destination.
func (b *about) mine(f *audit.Flow) bool {
	if b.hasToken(string(f.Name), string(f.SNI)) {
		return true
	}
	addr, err := netip.ParseAddr(f.DstIP)
	if err != nil {
		return false
	}
	dst := netip.AddrPortFrom(addr.Unmap(), uint16(f.DstPort))
	if local, peer := b.said.local(), b.said.peer(); local.Port() != 0 && f.SrcPort != 0 {
		here := peer.Addr().IsUnspecified() && peer.Port() == dst.Port() // the unspecified address means loopback
		return int(local.Port()) == f.SrcPort && (peer == dst || here)
	}
	return b.task != nil && !b.named() && slices.ContainsFunc(b.targets, func(t target) bool {
		return t.is(f.Proto, dst) || f.DstPort == 0 && t.to.Addr() == dst.Addr()
	})
}

// named reports whether the probe connects to a name, whose addresses other probes may share.
func (b *about) named() bool { return b.task.Name != "" }

func (b *about) hasToken(texts ...string) bool {
	for _, t := range texts {
		if strings.Contains(strings.ToLower(t), b.token) {
			return true
		}
	}
	return false
}

// denied: an enforcer reports that it denied the probe.
func denied(b *about, r *audit.Record) bool {
	if r.Observer != audit.Host {
		return false
	}
	switch {
	case r.Flow != nil:
		return r.Flow.Verdict == audit.Deny && b.mine(r.Flow)
	case r.DNS != nil:
		return r.DNS.Verdict == audit.Deny && b.hasToken(string(r.DNS.Name))
	case r.HTTP != nil:
		return (r.HTTP.Verdict == audit.Deny || r.HTTP.Reason != "") && (b.flows[r.HTTP.Flow] || b.hasToken(string(r.HTTP.Path), string(r.HTTP.Host)))
	}
	return false
}

// deniedOrRefused: an enforcer recorded a denial, or the guest's kernel refused the call and sent no packet. Only the
// guest can report the latter: by its sensor, or in the probe's output.
func deniedOrRefused(b *about, r *audit.Record) bool {
	switch {
	case denied(b, r):
		return true
	case r.Flow != nil && r.Flow.State == audit.FlowAttempt:
		return b.said.Stage == "connect" && r.Flow.Errno != 0 && b.mine(r.Flow)
	case r.Output != nil:
		return b.said.Stage == "socket" && strings.Contains(string(r.Output.Text), strconv.Quote(b.ID))
	}
	return false
}

// deniedOrEnded: an enforcer reports that it denied the probe, or that its connection ended without a valid request.
func deniedOrEnded(b *about, r *audit.Record) bool {
	return denied(b, r) || r.Flow != nil && r.Flow.State == audit.FlowClose && b.mine(r.Flow)
}

// asked: the resolver recorded the query.
func asked(b *about, r *audit.Record) bool {
	return r.DNS != nil && b.hasToken(string(r.DNS.Name))
}

// withheld: an enforcer denied the probe, or the resolver withheld addresses from the guest.
func withheld(b *about, r *audit.Record) bool {
	return denied(b, r) || r.DNS != nil && len(r.DNS.Dropped) > 0 && b.hasToken(string(r.DNS.Name))
}

// toAll: the fence denied a frame to a MAC address other than its own. It does not parse such a frame further.
func toAll(_ *about, r *audit.Record) bool {
	return r.Flow != nil && r.Flow.State == audit.FlowDeny && strings.Contains(r.Flow.Reason, "MAC address")
}

// revoked: a policy change ended the flow.
func revoked(b *about, r *audit.Record) bool {
	return r.Flow != nil && r.Flow.State == audit.FlowRevoke && b.mine(r.Flow)
}

// interrupted: the next custody process found the run dead and recorded its end.
func interrupted(_ *about, r *audit.Record) bool {
	return r.Kind == audit.KindRun && r.Lifecycle.Phase == audit.PhaseEnd && r.Lifecycle.Status == audit.StatusInterrupted
}

// found: there is a finding of a rule whose detail contains a text.
func found(rule audit.Rule, what string) evidence {
	return func(_ *about, r *audit.Record) bool {
		return r.Finding != nil && r.Finding.Rule == rule && strings.Contains(r.Finding.Detail, what)
	}
}

// flagged: there is a finding of a rule about a secret of the probe, from its own step.
func flagged(rule audit.Rule) evidence {
	return func(b *about, r *audit.Record) bool {
		return r.Finding != nil && r.Finding.Rule == rule && b.concerns(r.Finding.Secret) &&
			(r.Step == b.step || rule == audit.RuleSecretAfterStep)
	}
}

// handed: the record reports that the secret was delivered to its step, or revoked. Access to it in the guest is not
// recorded.
func handed(op audit.SecretOp) evidence {
	return func(b *about, r *audit.Record) bool {
		return r.Secret != nil && r.Secret.Op == op && slices.ContainsFunc(b.records, func(m audit.Record) bool {
			return m.Secret != nil && m.Secret.Op == audit.SecretMint && m.Secret.Accessor == r.Secret.Accessor && b.concerns(m.Secret.Name)
		})
	}
}

// concerns reports whether a secret is the probe's.
func (b *about) concerns(name string) bool {
	return slices.ContainsFunc(b.about, func(s secret) bool { return s.name == name })
}

// flawed: the resolver denied an invalid query, with this reason.
func flawed(reason string) evidence {
	return func(_ *about, r *audit.Record) bool {
		return r.DNS != nil && r.DNS.Verdict == audit.Deny && strings.Contains(r.DNS.Reason, reason)
	}
}

// anyDenial: the fence denied a packet. The scene of the hostile kernel makes one probe at a time.
func anyDenial(_ *about, r *audit.Record) bool {
	return r.Flow != nil && r.Flow.State == audit.FlowDeny
}

// explain describes a record briefly.
func explain(r *audit.Record) string {
	switch {
	case r.Flow != nil:
		return strings.TrimSuffix("flow "+string(r.Flow.State)+": "+r.Flow.Reason, ": ")
	case r.DNS != nil:
		return strings.TrimSuffix("dns "+r.DNS.RCode+": "+r.DNS.Reason, ": ")
	case r.HTTP != nil:
		return "http " + strconv.Itoa(r.HTTP.Status) + ": " + r.HTTP.Reason
	case r.Finding != nil:
		return "finding " + string(r.Finding.Rule)
	case r.Secret != nil:
		return "secret " + string(r.Secret.Op)
	case r.Exec != nil, r.File != nil:
		return "masked in " + string(r.Kind)
	case r.Output != nil:
		return "refused inside the guest"
	case r.Lifecycle != nil:
		return "run " + string(r.Lifecycle.Status)
	}
	return string(r.Kind)
}
