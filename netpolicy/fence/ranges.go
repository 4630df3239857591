package fence

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/custody-project/custody/netpolicy"
)

// rangesOf returns a policy's rules for ranges as a table in which the longest match decides as netpolicy.Decide does:
// the ranges of rules allow, special-purpose ranges deny, and if both are the same range the rule names it. Keys begin
// with transport and port, so that ports are independent.
func rangesOf(p *netpolicy.Policy, allow func(*netpolicy.Rule, netpolicy.Port) uint32) map[programsRangeKey]uint32 {
	table := map[programsRangeKey]uint32{}
	for i := range p.Rules() {
		r := &p.Rules()[i]
		prefix, is := r.Pattern.Prefix()
		if !is {
			continue
		}
		for _, port := range r.Ports {
			for _, s := range netpolicy.SpecialRanges() {
				if key := rangeKey(s, port); table[key] == 0 {
					table[key] = 0
				}
			}
			if key := rangeKey(prefix, port); table[key] == 0 {
				table[key] = allow(r, port)
			}
		}
	}
	return table
}

func rangeKey(p netip.Prefix, port netpolicy.Port) programsRangeKey {
	t := targetOf(p.Addr(), port)
	return programsRangeKey{Bits: 32 + uint32(p.Bits()), Proto: t.Proto, Family: t.Family, Port: t.Port, Addr: t.Addr}
}

// setRanges replaces the programs' table of ranges by one that newTable makes. If that fails the table is empty.
func (b *permitTable) setRanges(policy *netpolicy.Policy, newTable func(entries int) (*ebpf.Map, error)) error {
	before := b.ranges
	b.ranges = map[uint32]bool{}
	table := rangesOf(policy, b.rangePermit)
	if len(table) == 0 {
		if len(before) == 0 {
			return nil
		}
		return b.noRanges(nil)
	}
	fresh, err := newTable(len(table))
	if err != nil {
		return b.noRanges(err)
	}
	defer fresh.Close() // the outer map has a reference
	for key, id := range table {
		if err := fresh.Put(key, id); err != nil {
			return b.noRanges(err)
		}
	}
	if err := b.maps.Ranges.Put(uint32(0), fresh); err != nil {
		return b.noRanges(err)
	}
	return nil
}

func (b *permitTable) noRanges(why error) error {
	err := b.maps.Ranges.Delete(uint32(0))
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		err = nil
	}
	if err = errors.Join(why, err); err != nil {
		return fmt.Errorf("write the policy's ranges: %w", err)
	}
	return nil
}

// rangePermit makes the permit of a range rule for one port.
func (b *permitTable) rangePermit(r *netpolicy.Rule, port netpolicy.Port) uint32 {
	p := &permit{id: b.next | rangeBit, Permit: Permit{Port: port, Via: netpolicy.Direct, Rule: r.String()}}
	b.next++
	b.byID[p.id] = p
	b.ranges[p.id] = true
	return p.id
}
