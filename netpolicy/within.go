package netpolicy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Excess is a rule that allows more than a bound.
type Excess struct {
	Rule Rule
	// Name is a name for which the rule exceeds the bound, with "*" for any label; empty for a range of addresses.
	Name string
	// Bound is the bound's closest rule; nil when none names the destination.
	Bound *Rule
	What  string // why that rule is not enough
}

// Error returns the rule and the reason.
func (e *Excess) Error() string {
	text := e.Rule.String()
	if e.Name != "" && e.Name != e.Rule.Pattern.String() {
		text += ", for " + e.Name
	}
	if e.Bound == nil {
		return text + ": " + e.What
	}
	return fmt.Sprintf("%s: %s (%s)", text, e.What, e.Bound.String())
}

// Why a rule of a bound is not enough; the later, the closer the rule.
var shortfalls = []string{
	"no rule allows this destination",
	"the closest rule has the other mode",
	"the closest rule does not allow %s",
	"the closest rule requires http, with methods and paths that it lists",
	"the closest rule does not name these addresses",
}

// Within returns nothing if bound allows all that p allows, and otherwise each rule of p that exceeds it. For each
// destination and port, one rule of p must lie within one rule of bound: rules of bound are not combined. Credentials
// and their masking are not compared: see Narrows.
func (p *Policy) Within(bound *Policy) []*Excess { return p.beyond(bound, (*Rule).excess) }

// Narrows is Within, and compares credentials too. A request must carry the same credential under both: with another one,
// or with one of the guest's own, it could act for another account. Responses in which bound masks credentials must be
// masked by p.
func (p *Policy) Narrows(bound *Policy) []*Excess {
	return p.beyond(bound, func(r *Rule, name string, limits []*Rule) *Excess {
		if e := r.excess(name, limits); e != nil {
			return e
		}
		if name != "" && !sameRules(p.Match(name), limits) {
			return r.credentialExcess(name, limits)
		}
		return nil
	})
}

// beyond returns each rule of p for which excess finds something.
func (p *Policy) beyond(bound *Policy, excess func(r *Rule, name string, limits []*Rule) *Excess) []*Excess {
	var list []*Excess
	add := func(e *Excess) {
		if e != nil && !slices.ContainsFunc(list, func(o *Excess) bool { return o.Rule.String() == e.Rule.String() }) {
			list = append(list, e)
		}
	}
	for _, name := range representatives(p, bound) {
		limits := bound.Match(name)
		for _, r := range p.Match(name) {
			add(excess(r, name, limits))
		}
	}
	if p == nil {
		return nil
	}
	var ranges []*Rule
	if bound != nil {
		ranges = bound.prefixes
	}
	for _, r := range p.prefixes {
		add(excess(r, "", ranges))
	}
	return list
}

// representatives returns names that represent all others: which rules of either policy decide on a name depends only on
// the longest pattern of both that matches it. "*" is not a label of any pattern, so "*.a.com" represents the names
// below a.com that no longer pattern matches.
func representatives(policies ...*Policy) []string {
	var names []string
	for _, p := range policies {
		for _, r := range p.Rules() {
			switch name, below := r.Pattern.Name(); {
			case r.Pattern == anyName:
				names = append(names, "*")
			case below:
				names = append(names, "*."+name)
			case name != "":
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// excess returns where r exceeds the rules that decide on the same destination, or nil.
func (r *Rule) excess(name string, limits []*Rule) *Excess {
	for _, port := range r.Ports {
		best, nearest := 0, (*Rule)(nil)
		if slices.ContainsFunc(limits, func(limit *Rule) bool {
			short := r.shortfall(port, limit)
			if short > best {
				best, nearest = short, limit
			}
			return short == len(shortfalls)
		}) {
			continue
		}
		what := shortfalls[best]
		if strings.Contains(what, "%s") {
			what = fmt.Sprintf(what, port)
		}
		return &Excess{*r, name, nearest, what}
	}
	return nil
}

func sameRules(a, b []*Rule) bool {
	return slices.EqualFunc(a, b, func(a, b *Rule) bool { return a.String() == b.String() })
}

// credentialExcess returns a rule of limits, which decide on the same name, that shares a port with r and has another
// credential or masks more. Any of them counts: the one that decides on a request depends on its method and path.
func (r *Rule) credentialExcess(name string, limits []*Rule) *Excess {
	for _, limit := range limits {
		switch {
		case !slices.ContainsFunc(r.Ports, limit.hasPort):
		case r.Credential != limit.Credential:
			return &Excess{*r, name, limit, "the closest rule has another credential, or none"}
		case limit.Redacts() && !r.Redacts():
			return &Excess{*r, name, limit, "the closest rule masks credentials in responses"}
		}
	}
	return nil
}

// shortfall returns the index of limit's shortfall, or the number of shortfalls if limit allows all that r does on this
// port.
func (r *Rule) shortfall(port Port, limit *Rule) int {
	prefix, isRange := r.Pattern.Prefix()
	switch {
	case isRange && !inRange(prefix, limit.Pattern.prefix):
		return 0
	case r.Mode != limit.Mode:
		return 1
	case !limit.hasPort(port):
		return 2
	case limit.HTTP != nil && !r.HTTP.within(limit.HTTP):
		return 3
	case !isRange && slices.ContainsFunc(r.Addresses, func(a netip.Prefix) bool {
		return !slices.ContainsFunc(limit.Addresses, func(l netip.Prefix) bool { return inRange(a, l) })
	}):
		return 4
	}
	return len(shortfalls)
}

// inRange reports whether limit contains all addresses that naming p allows. A range names a special one only if it lies
// within it (see AllowsAddr), so 0.0.0.0/0 does not include what 10.0.0.0/8 allows.
func inRange(p, limit netip.Prefix) bool {
	if !limit.Contains(p.Addr()) || limit.Bits() > p.Bits() {
		return false
	}
	return !slices.ContainsFunc(specialRanges, func(s netip.Prefix) bool {
		return s.Contains(p.Addr()) && s.Bits() <= p.Bits() && s.Bits() > limit.Bits()
	})
}

// within reports whether limit allows every request that h does.
func (h *HTTP) within(limit *HTTP) bool {
	if h == nil {
		return false // requests are not inspected
	}
	allOf := func(list, limits []string, in func(s, limit string) bool) bool {
		return len(limits) == 0 || len(list) > 0 && !slices.ContainsFunc(list, func(s string) bool {
			return !slices.ContainsFunc(limits, func(limit string) bool { return in(s, limit) })
		})
	}
	equal := func(a, b string) bool { return a == b }
	return allOf(h.Methods, limit.Methods, equal) && allOf(h.Paths, limit.Paths, func(path, limit string) bool {
		stem, open := strings.CutSuffix(limit, "*")
		return path == limit || open && strings.HasPrefix(strings.TrimSuffix(path, "*"), stem)
	})
}
