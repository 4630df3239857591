package netpolicy

import (
	"errors"
	"net/netip"
	"strings"
)

// Pattern is the destination of a rule: one name, all names below one ("*." before it, at any depth, but not the name
// itself), or a range of addresses. In a bound it can also be every name ("**").
type Pattern struct {
	name   string
	below  bool
	prefix netip.Prefix
}

// anyName matches every name. A project file cannot contain it: see ParseBound.
var anyName = Pattern{below: true}

// ParseBound parses a pattern of a bound: as ParsePattern, and "**" for every name.
func ParseBound(s string) (Pattern, error) {
	if s == "**" {
		return anyName, nil
	}
	return ParsePattern(s)
}

// ParsePattern parses a pattern in the notation of project files. The error states what to write instead.
func ParsePattern(s string) (Pattern, error) {
	if isRange(s) {
		prefix, err := ParseRange(s)
		return Pattern{prefix: prefix}, err
	}
	rest, below := strings.CutPrefix(s, "*.")
	name, ok := Name(rest)
	if !ok {
		return Pattern{}, errors.New("give a host name, such as api.example.com or *.example.com, or a range of addresses")
	}
	if below && !strings.Contains(name, ".") {
		return Pattern{}, errors.New("a whole top-level domain cannot be allowed: name the hosts that are needed")
	}
	return Pattern{name: name, below: below}, nil
}

func isRange(s string) bool {
	_, notPrefix := netip.ParsePrefix(s)
	_, notAddr := netip.ParseAddr(s)
	return notPrefix == nil || notAddr == nil
}

// ParseRange parses a range of addresses, such as 10.0.0.0/8. Its host bits must be zero; a single address is a range of
// one. The error states what to write instead.
func ParseRange(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if a, notAddr := netip.ParseAddr(s); notAddr == nil {
		p, err = netip.PrefixFrom(a.WithZone(""), a.BitLen()), nil
		if a.Zone() != "" {
			err = errors.New("zone")
		}
	}
	switch {
	case err != nil:
		return netip.Prefix{}, errors.New("give a range of addresses, such as 10.0.0.0/8 or fd00::/8, without a zone")
	case p.Addr().Is4In6():
		return netip.Prefix{}, errors.New("write an IPv4 address as such, such as 192.0.2.1")
	case p != p.Masked():
		return netip.Prefix{}, errors.New("the range has bits beyond its length: write " + p.Masked().String())
	}
	return p, nil
}

// Prefix returns the pattern's range of addresses. ok is false if the pattern is a name.
func (p Pattern) Prefix() (netip.Prefix, bool) { return p.prefix, p.prefix.IsValid() }

// Name returns the name of the pattern without its "*.", and whether it had one.
func (p Pattern) Name() (name string, below bool) { return p.name, p.below }

// Matches reports whether the pattern matches name, which must be in normal form. Ranges of addresses match no name.
func (p Pattern) Matches(name string) bool {
	if p == anyName {
		return name != ""
	}
	if p.below {
		return strings.HasSuffix(name, "."+p.name)
	}
	return p.name != "" && p.name == name
}

// String returns the pattern in the notation of project files.
func (p Pattern) String() string {
	switch {
	case p.prefix.IsValid():
		return p.prefix.String()
	case p == anyName:
		return "**"
	case p.below:
		return "*." + p.name
	}
	return p.name
}

// Name returns a host name in the form in which names are compared: lower case, no final dot. It returns false if the
// name is not a host name: it has empty or overlong labels, characters other than letters, digits, "-" and "_", or a
// number as its last label, which some programs read as an address (RFC 3696, section 2; WHATWG URL, "ends in a
// number").
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
	if label[0] < 'a' || label[0] > 'z' { // so that the last one is not a number in any notation
		return "", false
	}
	return s, true
}

// lower changes ASCII only: names with other characters are rejected anyway, and none of those may become an ASCII
// letter.
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
