package netpolicy

import (
	"net/netip"
	"slices"
	"strings"
)

// Question describes traffic for which an enforcer needs a decision.
type Question struct {
	// Name is the host name in the form that Name returns. Empty means that only the address is known.
	Name string
	// Addr is the destination of a packet or a connection. The zero Addr asks only about the name.
	Addr netip.Addr
	// Port is the destination port. The zero Port asks whether any port is allowed, as for a DNS query.
	Port Port
	// Via is the enforcer's mode; empty means either.
	Via Mode
	// Request is set for an HTTP request that the enforcer can read.
	Request *Request
}

// Request is the part of an HTTP request that rules can restrict.
type Request struct {
	Method string
	Path   string // as on the wire, without the query
}

// Verdict is the result of Decide.
type Verdict struct {
	Allow bool
	// Rule is the rule that allows the question, or the closest one; nil when no rule names the destination.
	Rule   *Rule
	Reason Reason // empty when allowed
}

// RuleName returns the rule's name in the record: "default" if no rule names the destination.
func (v Verdict) RuleName() string {
	if v.Rule == nil {
		return Default
	}
	return v.Rule.String()
}

// Default is the name of the implicit rule that denies everything else.
const Default = "default"

// Reason is why something is denied. The values are part of the record format.
type Reason string

// The reasons of Decide.
const (
	NoRule       Reason = "no rule names this destination"
	NoName       Reason = "this is not a host name in its plain form"
	WrongPort    Reason = "the rule does not name this port"
	WrongMode    Reason = "the rule has the other mode"
	WrongMethod  Reason = "the rule does not allow this method"
	WrongPath    Reason = "the rule does not allow this path"
	UnclearPath  Reason = "the path can be read in two ways"
	SpecialRange Reason = "the address has a special purpose that the rule's addresses do not name"
)

// reasons are the reasons that involve a rule, in the order of Decide's checks, so that the closest rule is reported.
var reasons = []Reason{WrongMode, WrongPort, WrongMethod, WrongPath, UnclearPath, SpecialRange}

// IsReason reports whether a recorded reason is one of Decide's, which a change of rules could change.
func IsReason(s string) bool {
	return s == string(NoRule) || slices.Contains(reasons, Reason(s))
}

// Decide is the decision that all enforcers make. It is a pure function; tests compare the eBPF programs, the resolver
// and the gateway with it.
//
// Only the most specific of the patterns that match a name counts: the exact name before "*." patterns, and a longer one
// before a shorter one. Any of the rules with that pattern can allow the question. Among ranges of addresses, the
// longest with the port decides.
func Decide(p *Policy, q Question) Verdict {
	if q.Name == "" {
		return p.decideAddr(q)
	}
	if name, ok := Name(q.Name); !ok || name != q.Name {
		return Verdict{Reason: NoName}
	}
	rules := p.Match(q.Name)
	if len(rules) == 0 {
		return Verdict{Reason: NoRule}
	}
	best := Verdict{Rule: rules[0], Reason: WrongMode}
	for _, r := range rules {
		v := r.decide(q)
		if v.Allow {
			return v
		}
		if depth(v.Reason) > depth(best.Reason) {
			best = v
		}
	}
	return best
}

func depth(r Reason) int { return slices.Index(reasons, r) }

func (r *Rule) decide(q Question) Verdict {
	deny := func(why Reason) Verdict { return Verdict{Rule: r, Reason: why} }
	if q.Via != "" && q.Via != r.Mode {
		return deny(WrongMode)
	}
	if q.Port != (Port{}) && !r.hasPort(q.Port) {
		return deny(WrongPort)
	}
	if q.Request != nil && r.HTTP != nil {
		if why := r.HTTP.denies(*q.Request); why != "" {
			return deny(why)
		}
	}
	if q.Addr.IsValid() && !r.AllowsAddr(q.Addr) {
		return deny(SpecialRange)
	}
	return Verdict{Allow: true, Rule: r}
}

func (h *HTTP) denies(req Request) Reason {
	if slices.Contains(neverMethods, req.Method) || len(h.Methods) > 0 && !slices.Contains(h.Methods, req.Method) {
		return WrongMethod
	}
	if len(h.Paths) == 0 {
		return ""
	}
	if !ClearPath(req.Path) {
		return UnclearPath
	}
	for _, want := range h.Paths {
		stem, open := strings.CutSuffix(want, "*")
		if req.Path == want || open && strings.HasPrefix(req.Path, stem) {
			return ""
		}
	}
	return WrongPath
}

// Match returns the rules that decide on a name: those with the most specific pattern that matches it. The caller must
// not change them.
func (p *Policy) Match(name string) []*Rule {
	if p == nil {
		return nil
	}
	if rules := p.exact[name]; rules != nil {
		return rules
	}
	for {
		_, parent, more := strings.Cut(name, ".")
		if !more {
			return p.suffixes[anyName.name]
		}
		if rules := p.suffixes[parent]; rules != nil {
			return rules
		}
		name = parent
	}
}

// decideAddr decides on an address without a name.
func (p *Policy) decideAddr(q Question) Verdict {
	best := Verdict{Reason: NoRule}
	if p == nil || !q.Addr.IsValid() || q.Via == Gateway {
		return best
	}
	addr := q.Addr.Unmap()
	for _, r := range p.prefixes { // longest first
		if !r.Pattern.prefix.Contains(addr) {
			continue
		}
		switch {
		case q.Port != (Port{}) && !r.hasPort(q.Port):
			if best.Rule == nil {
				best = Verdict{Rule: r, Reason: WrongPort}
			}
		case !r.AllowsAddr(addr):
			if best.Reason != SpecialRange {
				best = Verdict{Rule: r, Reason: SpecialRange}
			}
		default:
			return Verdict{Allow: true, Rule: r}
		}
	}
	return best
}
