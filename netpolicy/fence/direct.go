package fence

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/custody-project/custody/netpolicy"
)

var errNoUplink = errors.New("direct flows have no uplink: the policy change that needs one failed")

// maxNamed bounds the number of host addresses that rules may name.
const maxNamed = 256

// direct manages the uplink for direct flows, which exists while the policy has direct rules. It is guarded by its
// fence's mu.
type direct struct {
	space, host *space
	gates       *gates
	maps        *programs
	marks       marks
	inject      *injector
	permits     *permitTable
	uplink      *uplink      // nil unless the policy has direct rules
	named       []netip.Addr // single addresses that the policy names; empty without an uplink
}

// connect makes or removes the uplink, depending on the policy.
func (d *direct) connect(ctx context.Context, g netpolicy.Generation) (err error) {
	p := g.Policy
	switch {
	case !p.HasDirect() && d.uplink != nil:
		u := d.uplink
		d.uplink, d.named = nil, nil
		d.inject.closeUplink()
		return u.close(d.marks)
	case p.HasDirect() && d.uplink == nil:
		if d.uplink, err = newUplink(ctx, d.space, d.host, d.gates, d.maps, d.marks, g.Number); err != nil {
			d.uplink = nil
			return fmt.Errorf("make the uplink for direct rules: %w", hint(err))
		}
		if err := d.space.in(d.inject.openUplink); err != nil {
			return err
		}
	}
	if d.uplink == nil {
		return nil
	}
	if err := d.setNamed(d.namedBy(p)); err != nil {
		return err
	}
	return d.keep(d.named) // includes the uplink's own addresses
}

// namedBy returns the single addresses that the policy names: in rules for ranges, and in the addresses of rules whose
// name resolved to them.
func (d *direct) namedBy(p *netpolicy.Policy) (named []netip.Addr) {
	for _, r := range p.Rules() {
		if prefix, ok := r.Pattern.Prefix(); ok && prefix.IsSingleIP() {
			named = append(named, prefix.Addr())
		}
	}
	for _, under := range d.permits.pins.Values() {
		for _, permit := range under {
			if givenBy(permit.allowedBy(p), permit.addr) {
				named = append(named, permit.addr)
			}
		}
	}
	return named
}

func givenBy(v netpolicy.Verdict, addr netip.Addr) bool {
	return v.Allow && slices.ContainsFunc(v.Rule.Addresses, func(r netip.Prefix) bool { return r.Contains(addr) })
}

// name allows direct flows to a host address, if the rule names it.
func (d *direct) name(addr netip.Addr, p Permit) error {
	switch {
	case p.Via != netpolicy.Direct || slices.Contains(d.named, addr):
		return nil
	case d.uplink == nil:
		return errNoUplink
	}
	v := netpolicy.Decide(d.permits.policy, netpolicy.Question{Name: p.Name, Addr: addr, Port: p.Port, Via: p.Via})
	if !givenBy(v, addr) {
		return nil
	}
	return d.setNamed(append(slices.Clone(d.named), addr))
}

func (d *direct) setNamed(named []netip.Addr) error {
	slices.SortFunc(named, netip.Addr.Compare)
	named = slices.Compact(named)
	if len(named) > maxNamed {
		return fmt.Errorf("more than %d single addresses are named: write them as ranges", maxNamed)
	}
	if slices.Equal(named, d.named) {
		return nil
	}
	if err := d.keep(named); err != nil {
		return err
	}
	if err := d.uplink.guard.write(named, d.uplink.forwarding.opened()); err != nil {
		return err
	}
	d.named = named
	return nil
}

// keep makes the programs deny flows to the host, except for the named addresses.
func (d *direct) keep(named []netip.Addr) error {
	all, err := keptBy(d.host, named)
	if err != nil {
		return err
	}
	return d.permits.kept.set(all)
}
