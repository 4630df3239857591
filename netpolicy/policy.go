package netpolicy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Policy is a set of rules. The zero value and nil allow nothing. A Policy does not change after New, so it is safe for
// concurrent use.
type Policy struct {
	rules    []Rule
	exact    map[string][]*Rule // by name
	suffixes map[string][]*Rule // by the name below which they match
	prefixes []*Rule            // longest first
	digest   string
}

// New makes a policy from rules, which it normalizes and sorts. It returns a *RuleError for a rule that is malformed or
// contradicts another.
func New(rules []Rule) (*Policy, error) {
	p := &Policy{exact: map[string][]*Rule{}, suffixes: map[string][]*Rule{}}
	for _, r := range rules {
		n, err := r.Normal()
		if err != nil {
			return nil, err
		}
		p.rules = append(p.rules, n)
	}
	slices.SortStableFunc(p.rules, func(a, b Rule) int { return cmp.Compare(a.String(), b.String()) })
	p.rules = slices.CompactFunc(p.rules, func(a, b Rule) bool { return a.String() == b.String() })
	for i := range p.rules {
		if err := p.add(&p.rules[i]); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(p.prefixes, func(a, b *Rule) int { return cmp.Compare(b.Pattern.prefix.Bits(), a.Pattern.prefix.Bits()) })
	sum := sha256.Sum256([]byte(p.String()))
	p.digest = "sha256-" + hex.EncodeToString(sum[:])
	return p, nil
}

// add stores a rule under its pattern. The rules of one pattern must agree on how the traffic is inspected.
func (p *Policy) add(r *Rule) error {
	var same []*Rule
	switch {
	case r.Pattern.prefix.IsValid():
		p.prefixes = append(p.prefixes, r)
		return nil
	case r.Pattern.below:
		same = p.suffixes[r.Pattern.name]
		p.suffixes[r.Pattern.name] = append(same, r)
	default:
		same = p.exact[r.Pattern.name]
		p.exact[r.Pattern.name] = append(same, r)
	}
	for _, o := range same {
		if err := contradiction(o, r); err != nil {
			return err
		}
	}
	return nil
}

// contradiction returns why two rules of one pattern cannot both apply.
func contradiction(a, b *Rule) error {
	message, hint := "", ""
	shared := slices.ContainsFunc(a.Ports, b.hasPort)
	switch {
	case a.Mode != b.Mode:
		if a.Mode == Direct {
			a, b = b, a
		}
		message = fmt.Sprintf("%s is allowed both through the gateway%s and directly%s", a.Pattern, a.place(), b.place())
		hint = "all rules of a name need the same mode"
	case shared && (a.HTTP == nil) != (b.HTTP == nil):
		if a.HTTP == nil {
			a, b = b, a
		}
		message = fmt.Sprintf("%s is allowed with http%s and without%s on the same port", a.Pattern, a.place(), b.place())
		hint = "the rule without http would allow every request: remove one"
	case shared && a.Credential != b.Credential:
		message = fmt.Sprintf("%s has the credential %q%s and %q%s on the same port", a.Pattern, a.Credential, a.place(), b.Credential, b.place())
		hint = "name the same one in both"
	default:
		return nil
	}
	return &RuleError{*b, message, hint}
}

// place returns the rule's position in its file, as text for errors.
func (r *Rule) place() string {
	if r.Line == 0 {
		return ""
	}
	return fmt.Sprintf(" (line %d)", r.Line)
}

// Rules returns the rules in their normal form and order. The caller must not change them.
func (p *Policy) Rules() []Rule {
	if p == nil {
		return nil
	}
	return p.rules
}

// String returns the normal form: one rule per line. It does not depend on the order and the repetition of the rules.
func (p *Policy) String() string {
	var b strings.Builder
	for i := range p.Rules() {
		b.WriteString(p.rules[i].String() + "\n")
	}
	return b.String()
}

// Digest returns the SHA-256 of the normal form, as "sha256-" and hexadecimal digits.
func (p *Policy) Digest() string {
	if p == nil || p.digest == "" {
		sum := sha256.Sum256(nil)
		return "sha256-" + hex.EncodeToString(sum[:])
	}
	return p.digest
}

// TCPPorts returns the TCP ports that rules for the gateway name, in order.
func (p *Policy) TCPPorts() []uint16 {
	var ports []uint16
	for i := range p.Rules() {
		if p.rules[i].Mode != Gateway {
			continue
		}
		for _, port := range p.rules[i].Ports {
			ports = append(ports, port.Number)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// HasDirect reports whether any rule has mode direct.
func (p *Policy) HasDirect() bool {
	return slices.ContainsFunc(p.Rules(), func(r Rule) bool { return r.Mode == Direct })
}

// OpensTLS reports whether any rule requires the gateway to open TLS.
func (p *Policy) OpensTLS() bool {
	return slices.ContainsFunc(p.Rules(), func(r Rule) bool { return r.HTTP != nil })
}
