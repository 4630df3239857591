package netpolicy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Mode says which way the traffic of a rule takes.
type Mode string

// The ways out of the sandbox.
const (
	Gateway Mode = "gateway" // through the gateway, which checks the name; the default
	Direct  Mode = "direct"  // through the kernel's path, without a look inside
)

// Port is a transport and a port number.
type Port struct {
	Proto  string // tcp or udp
	Number uint16
}

// String returns the port as a file writes it, such as tcp/443.
func (p Port) String() string { return fmt.Sprintf("%s/%d", p.Proto, p.Number) }

// HTTP narrows a rule to requests; an empty list allows all.
type HTTP struct {
	Methods []string // upper case
	Paths   []string // each begins with a slash; "/*" at the end stands for all that begins so
}

// Rule allows what its pattern matches, on its ports.
type Rule struct {
	Pattern Pattern
	Ports   []Port
	Mode    Mode
	HTTP    *HTTP // nil: nobody looks inside TLS
	// Addresses are ranges with a special purpose (private, loopback, ...) in which
	// the name's addresses may lie all the same; see Special.
	Addresses  []netip.Prefix
	Credential string // name of a secret, or empty

	Line, Column int // where the rule stands in its file; no part of its normal form
}

// String returns the rule's normal form, which is also its name in the record.
// Two rules that allow the same are written the same.
func (r *Rule) String() string {
	var b strings.Builder
	b.WriteString(r.Pattern.String())
	for _, p := range r.Ports {
		b.WriteString(" " + p.String())
	}
	if r.Mode == Direct {
		b.WriteString(" direct")
	}
	if r.HTTP != nil {
		b.WriteString(" http")
		list(&b, "methods", r.HTTP.Methods)
		list(&b, "paths", r.HTTP.Paths)
	}
	var ranges []string
	for _, a := range r.Addresses {
		ranges = append(ranges, a.String())
	}
	list(&b, "addresses", ranges)
	if r.Credential != "" {
		b.WriteString(" credential=" + r.Credential)
	}
	return b.String()
}

func list(b *strings.Builder, name string, items []string) {
	if len(items) > 0 {
		fmt.Fprintf(b, " %s=%q", name, items)
	}
}

func (r *Rule) hasPort(p Port) bool { return slices.Contains(r.Ports, p) }

// Policy is what a project allows. The zero value and nil allow nothing. A
// Policy does not change after New, so it may be used concurrently.
type Policy struct {
	rules    []Rule
	exact    map[string][]*Rule // by name
	suffixes map[string][]*Rule // by the name below which they match
	prefixes []*Rule            // longest first
	digest   string
}

// New makes a policy of rules that are each well formed. It brings them into
// their normal form and order, and refuses rules that contradict each other.
func New(rules []Rule) (*Policy, error) {
	p := &Policy{exact: map[string][]*Rule{}, suffixes: map[string][]*Rule{}}
	for _, r := range rules {
		n, err := normal(r)
		if err != nil {
			return nil, err
		}
		p.rules = append(p.rules, n)
	}
	slices.SortFunc(p.rules, func(a, b Rule) int { return cmp.Compare(a.String(), b.String()) })
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

// RuleError is what is wrong with one rule.
type RuleError struct {
	Rule    Rule // as it was given
	Message string
	Hint    string
}

// Error returns the message and the hint.
func (e *RuleError) Error() string { return e.Message + "; " + e.Hint }

func normal(r Rule) (Rule, error) {
	n := r
	if n.Mode == "" {
		n.Mode = Gateway
	}
	if len(n.Ports) == 0 {
		n.Ports = []Port{{"tcp", 443}}
	}
	n.Ports = sorted(n.Ports, func(a, b Port) int { return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Number, b.Number)) })
	n.Addresses = sorted(n.Addresses, func(a, b netip.Prefix) int { return cmp.Compare(a.String(), b.String()) })
	if n.HTTP != nil {
		n.HTTP = &HTTP{Methods: sorted(n.HTTP.Methods, strings.Compare), Paths: sorted(n.HTTP.Paths, strings.Compare)}
	}
	_, isRange := n.Pattern.Prefix()
	udp := slices.ContainsFunc(n.Ports, func(p Port) bool { return p.Proto != "tcp" })
	switch {
	case isRange && n.Mode != Direct:
		return n, &RuleError{r, "a range of addresses has no name that a gateway could check", "give the rule mode: direct, or allow a name"}
	case isRange && len(n.Addresses) > 0:
		return n, &RuleError{r, "a rule for a range of addresses cannot have addresses", "the range itself says which: remove addresses"}
	case n.Mode == Direct && (n.HTTP != nil || n.Credential != ""):
		return n, &RuleError{r, "a rule with mode direct cannot have http or credential", "nobody looks inside a direct stream: use mode gateway, or remove them"}
	case n.Mode == Gateway && udp:
		return n, &RuleError{r, "the gateway carries TCP only", "give the rule mode: direct for UDP"}
	}
	return n, nil
}

func sorted[S ~[]E, E comparable](s S, by func(a, b E) int) S {
	return slices.Compact(slices.SortedFunc(slices.Values(s), by))
}

// add files a rule under its pattern. Rules of one pattern add up, so they
// must agree on how the traffic is looked at.
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
		if o.Mode != r.Mode {
			return &RuleError{*r, fmt.Sprintf("%s is allowed both through the gateway and directly", r.Pattern), "a name has one answer: give its rules the same mode"}
		}
		shared := slices.ContainsFunc(o.Ports, r.hasPort)
		if shared && (o.HTTP == nil) != (r.HTTP == nil) {
			return &RuleError{*r, fmt.Sprintf("%s is allowed with http and without on the same port", r.Pattern), "the rule without http would allow every request: remove one"}
		}
		if shared && o.Credential != r.Credential {
			return &RuleError{*r, fmt.Sprintf("two rules for %s on the same port name different credentials", r.Pattern), "name the same one in both"}
		}
	}
	return nil
}

// Rules returns the rules in their normal form and order. The caller does not change them.
func (p *Policy) Rules() []Rule {
	if p == nil {
		return nil
	}
	return p.rules
}

// String returns the normal form: a rule a line. Policies that allow the same
// in the same way are written the same.
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

// HasDirect says whether a rule needs the kernel's path out.
func (p *Policy) HasDirect() bool {
	return slices.ContainsFunc(p.Rules(), func(r Rule) bool { return r.Mode == Direct })
}

// OpensTLS says whether a rule needs TLS to be opened.
func (p *Policy) OpensTLS() bool {
	return slices.ContainsFunc(p.Rules(), func(r Rule) bool { return r.HTTP != nil })
}
