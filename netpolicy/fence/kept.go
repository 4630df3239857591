package fence

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxKept is the capacity of the programs' map.
const maxKept = 65536

// kept is the programs' copy of the addresses that direct flows must not reach. The guard drops packets to them; the
// programs deny them before that, so that the record does not count them as sent. The watcher updates the copy. It is
// guarded by its fence's mu.
type kept struct {
	maps *programs
	now  map[netip.Prefix]bool // false: a host address that the policy names
	bits []int                 // prefix lengths in now, longest first
}

// neverUnicast are addresses that are never unicast and are in no routing table, and those of all uplinks, which can be
// added at any time.
var neverUnicast = []netip.Prefix{
	uplinks4, uplinks6,
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("::/128"), netip.MustParsePrefix("ff00::/8"),
}

// keptBy returns the addresses that direct flows must not reach: the host's own, without the named ones, and those that
// are not unicast.
func keptBy(host *netlink.Handle, named []netip.Addr) (map[netip.Prefix]bool, error) {
	routes, err := host.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_LOCAL}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list the host's own addresses: %w", err)
	}
	all := map[netip.Prefix]bool{}
	for _, p := range neverUnicast {
		all[p] = true
	}
	for _, r := range routes {
		p, ok := prefixOf(r)
		if !ok || r.Type == unix.RTN_UNICAST {
			continue
		}
		all[p] = true
		if r.Type != unix.RTN_LOCAL {
			continue
		}
		for _, a := range named {
			if p.Contains(a) {
				all[netip.PrefixFrom(a, a.BitLen())] = false
			}
		}
	}
	for _, r := range routes { // a broadcast address within a network whose addresses are all the host's
		if p, ok := prefixOf(r); ok && r.Type != unix.RTN_LOCAL && r.Type != unix.RTN_UNICAST {
			all[p] = true
		}
	}
	if len(all) > maxKept {
		return nil, fmt.Errorf("the host has more than %d addresses", maxKept)
	}
	return all, nil
}

func prefixOf(r netlink.Route) (netip.Prefix, bool) {
	if r.Dst == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(r.Dst.IP)
	if a4 := r.Dst.IP.To4(); a4 != nil && r.Family == netlink.FAMILY_V4 {
		a, ok = netip.AddrFromSlice(a4)
	}
	bits, _ := r.Dst.Mask.Size()
	return netip.PrefixFrom(a, bits), ok
}

// set updates the programs' table.
func (k *kept) set(all map[netip.Prefix]bool) error {
	if maps.Equal(all, k.now) {
		return nil
	}
	var errs []error
	for p, is := range all {
		if was, known := k.now[p]; known && was == is {
			continue
		}
		value := uint32(0)
		if is {
			value = 1
		}
		errs = append(errs, k.maps.Kept.Put(keptKey(p), value))
	}
	for p := range k.now {
		if _, still := all[p]; still {
			continue
		}
		if err := k.maps.Kept.Delete(keptKey(p)); !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("write the host's addresses: %w", err)
	}
	k.now, k.bits = all, nil
	for p := range all {
		k.bits = append(k.bits, p.Bits())
	}
	slices.Sort(k.bits)
	k.bits = slices.Compact(k.bits)
	slices.Reverse(k.bits)
	return nil
}

func keptKey(p netip.Prefix) programsRangeKey {
	w, family := words(p.Addr())
	return programsRangeKey{Bits: 32 + uint32(p.Bits()), Family: family, Addr: w}
}

// has reports whether an address is kept: it does the programs' lookup, in Go.
func (k *kept) has(a netip.Addr) bool {
	for _, bits := range k.bits {
		if p, err := a.Prefix(bits); err == nil {
			if is, ok := k.now[p]; ok {
				return is
			}
		}
	}
	return false
}
