package netpolicy

import (
	"errors"
	"net/netip"
	"strings"
)

// Pattern is what a rule allows: one name, all names below one ("*." before
// it, at any depth, but not the name itself), or a range of addresses.
type Pattern struct {
	name   string
	below  bool
	prefix netip.Prefix
}

// ParsePattern reads a pattern as a file writes it. A range has its host bits
// zero; a single address is a range of one.
func ParsePattern(s string) (Pattern, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		if p.Addr().Is4In6() || p.Addr().Zone() != "" {
			return Pattern{}, errors.New("write an IPv4 range as such, and no zone")
		}
		if p != p.Masked() {
			return Pattern{}, errors.New("the range has bits beyond its length: write " + p.Masked().String())
		}
		return Pattern{prefix: p}, nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		if a.Is4In6() || a.Zone() != "" {
			return Pattern{}, errors.New("write an IPv4 address as such, and no zone")
		}
		return Pattern{prefix: netip.PrefixFrom(a, a.BitLen())}, nil
	}
	rest, below := strings.CutPrefix(s, "*.")
	name, ok := Name(rest)
	if !ok {
		return Pattern{}, errors.New("give a host name, such as api.example.com or *.example.com, or a range of addresses")
	}
	if below && !strings.Contains(name, ".") {
		return Pattern{}, errors.New("a whole top-level domain cannot be allowed: name what is needed of it")
	}
	return Pattern{name: name, below: below}, nil
}

// Prefix returns the range that the pattern is, and false if it is a name.
func (p Pattern) Prefix() (netip.Prefix, bool) { return p.prefix, p.prefix.IsValid() }

// Name returns the name of the pattern without its "*.", and whether it had one.
func (p Pattern) Name() (name string, below bool) { return p.name, p.below }

// String returns the pattern as a file writes it.
func (p Pattern) String() string {
	switch {
	case p.prefix.IsValid():
		return p.prefix.String()
	case p.below:
		return "*." + p.name
	}
	return p.name
}

// Name brings a host name into the form in which names are compared: lower
// case, no final dot. It returns false for what is no host name: empty or overlong labels,
// other characters than letters, digits, "-" and "_", a last label that is a number (an
// address in disguise: RFC 3696, section 2; WHATWG URL, "ends in a number").
func Name(s string) (string, bool) {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > 253 {
		return "", false
	}
	s = lower(s)
	label := ""
	for label = range strings.SplitSeq(s, ".") {
		if !isLabel(label) {
			return "", false
		}
	}
	return s, label[0] >= 'a' && label[0] <= 'z' // so the last is no number, in no notation
}

// lower changes ASCII only: a name with other characters is refused anyway,
// and no other letter may turn into one of these.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + ('a' - 'A')
		}
		return r
	}, s)
}

func isLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
