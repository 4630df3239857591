package netpolicy

import (
	"cmp"
	"net/netip"
	"slices"
)

// specialRanges are the addresses that are not ordinary hosts on the internet: the special-purpose registries of IANA
// (RFC 6890 and its updates), multicast, ranges that can embed another address (NAT64, 6to4, Teredo), and the sandbox's
// own. Names must not resolve to them unless a rule allows it, which prevents DNS rebinding.
var specialRanges = withEmbedded(parsePrefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16",
	"192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"168.63.129.16/32", // Azure's platform, with its virtual machines' secrets, at an otherwise ordinary address
	// In IPv6, only 2000::/3 is allocated.
	"::/3", "4000::/2", "8000::/1",
	"2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
	"64:ff9b::/96", "64:ff9b:1::/48", "fc00::/7", "fe80::/10", "ff00::/8", // within the ranges above; listed so that a rule can name them
	Synthetic.String(), Link6.String(), // so that a rule for the ranges around them does not include them
))

// withEmbedded adds the forms in which NAT64 (RFC 6052) and 6to4 (RFC 3056) embed the IPv4 ranges, so that a rule for
// all of NAT64 does not include the embedded 10.0.0.0/8.
func withEmbedded(ranges []netip.Prefix) []netip.Prefix {
	for _, p := range ranges {
		if !p.Addr().Is4() {
			continue
		}
		v4 := p.Addr().As4()
		nat64 := [16]byte{0, 0x64, 0xff, 0x9b, 12: v4[0], v4[1], v4[2], v4[3]}
		sixToFour := [16]byte{0x20, 0x02, v4[0], v4[1], v4[2], v4[3]}
		ranges = append(ranges, netip.PrefixFrom(netip.AddrFrom16(nat64), 96+p.Bits()), netip.PrefixFrom(netip.AddrFrom16(sixToFour), 16+p.Bits()))
	}
	return ranges
}

func parsePrefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// firstByte has ranges by the first byte of their addresses, longest first, so that lookups are fast: a name can have a
// thousand addresses.
type firstByte [256][]netip.Prefix

var special4, special6 = indexed(specialRanges)

func indexed(ranges []netip.Prefix) (v4, v6 *firstByte) {
	v4, v6 = new(firstByte), new(firstByte)
	ranges = slices.SortedFunc(slices.Values(ranges), func(a, b netip.Prefix) int { return cmp.Compare(b.Bits(), a.Bits()) })
	for _, p := range ranges {
		index := v6
		if p.Addr().Is4() {
			index = v4
		}
		first := int(p.Addr().AsSlice()[0])
		for b := first; b < first+1<<max(0, 8-p.Bits()); b++ {
			index[b] = append(index[b], p)
		}
	}
	return v4, v6
}

// Special returns the smallest special-purpose range that contains the address. An IPv4 address mapped into IPv6 is
// treated as IPv4, and zones are ignored.
func Special(a netip.Addr) (netip.Prefix, bool) {
	a = a.WithZone("").Unmap()
	if !a.IsValid() {
		return netip.Prefix{}, false
	}
	ranges := special6[a.As16()[0]]
	if a.Is4() {
		ranges = special4[a.As4()[0]]
	}
	for _, s := range ranges {
		if s.Contains(a) {
			return s, true
		}
	}
	return netip.Prefix{}, false
}

// SpecialRanges returns all special-purpose ranges, for enforcers that keep them in a table.
func SpecialRanges() []netip.Prefix { return append([]netip.Prefix(nil), specialRanges...) }

// AllowsAddr reports whether a connection by this rule may go to the address: one without a special purpose, or one that
// the rule names. A range names a special one only if it lies within it: 0.0.0.0/0 does not name 10.0.0.0/8. An address
// with a zone is denied, since packets have none.
func (r *Rule) AllowsAddr(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	special, is := Special(a)
	if !is {
		return true
	}
	named := r.Addresses
	if prefix, ok := r.Pattern.Prefix(); ok {
		named = []netip.Prefix{prefix}
	}
	for _, n := range named {
		if n.Contains(a) && n.Bits() >= special.Bits() {
			return true
		}
	}
	return false
}
