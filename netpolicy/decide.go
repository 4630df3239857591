package netpolicy

import (
	"net/netip"
	"slices"
	"strings"
)

// Question is what an enforcer asks before it lets anything through.
type Question struct {
	// Name is the host name in the form that Name returns. Empty asks for the address by itself.
	Name string
	// Addr is where a packet or a connection goes. The zero Addr asks for the name alone.
	Addr netip.Addr
	// Port is the destination port. The zero Port asks whether there is any, as a DNS question does.
	Port Port
	// Via is the mode that the enforcer serves; empty means either.
	Via Mode
	// Request is set for a request whose inside can be seen.
	Request *Request
}

// Request is what a rule may ask of an HTTP request.
type Request struct {
	Method string
	Path   string // as on the wire, without the query
}

// Verdict is the answer.
type Verdict struct {
	Allow bool
	// Rule is the one that allows, or the one that came nearest to it; nil when none names the destination.
	Rule   *Rule
	Reason Reason // why not; empty when allowed
}

// RuleName returns how the record names the rule of the verdict: "default"
// where no rule names the destination.
func (v Verdict) RuleName() string {
	if v.Rule == nil {
		return Default
	}
	return v.Rule.String()
}

// Default is the name of the rule that there always is: everything is denied.
const Default = "default"

// Reason is why something is denied. The values stand in the record.
type Reason string

// Why Decide denies.
const (
	NoRule       Reason = "no rule names this destination"
	NoName       Reason = "this is not a host name in its plain form"
	WrongPort    Reason = "the rule does not name this port"
	WrongMode    Reason = "the rule takes the other way out"
	WrongMethod  Reason = "the rule does not allow this method"
	WrongPath    Reason = "the rule does not allow this path"
	UnclearPath  Reason = "the path can be read in two ways"
	SpecialRange Reason = "the address has a special purpose that the rule's addresses do not name"
)

// reasons are those of rules by how far a question got in one, so that the
// nearest miss is what is reported.
var reasons = []Reason{WrongMode, WrongPort, WrongMethod, WrongPath, UnclearPath, SpecialRange}

// IsReason reports whether a reason that stands in a record is one of Decide's,
// and so one that other rules could change.
func IsReason(s string) bool {
	return s == string(NoRule) || slices.Contains(reasons, Reason(s))
}

// Decide is the one decision that all enforcers make: it is pure, and the eBPF
// programs, the resolver and the gateway are tested against it.
//
// Of the patterns that match a name the most specific decides alone: the exact
// name before "*." patterns, a longer one before a shorter. Rules of that pattern
// add up. Of ranges of addresses the longest that names the port decides.
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

// Match returns the rules that decide on a name: those of the most specific
// pattern that matches it. The caller does not change them.
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

// decideAddr answers for an address that no name led to.
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
