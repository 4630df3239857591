package fence

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/custody-project/custody/netpolicy"
)

var errNoUplink = errors.New("there is no way out for direct flows: the policy change that needs one failed")

// maxNamed bounds the site's own addresses that a sandbox may reach.
const maxNamed = 256

// direct carries the direct flows: it has the cable to the site, while the policy has direct rules. It is guarded by its
// fence's mu.
type direct struct {
	space, site *space
	gates       *gates
	maps        *programs
	marks       marks
	inject      *injector
	book        *book
	uplink      *uplink      // nil unless the policy has direct rules
	named       []netip.Addr // single addresses that the policy names, while there is an uplink
}

// connect lays the cable for direct flows or takes it away, as the policy needs.
func (d *direct) connect(ctx context.Context, g netpolicy.Generation) (err error) {
	p := g.Policy
	switch {
	case !p.HasDirect() && d.uplink != nil:
		u := d.uplink
		d.uplink, d.named = nil, nil
		d.inject.unplug()
		return u.close(d.marks)
	case p.HasDirect() && d.uplink == nil:
		if d.uplink, err = newUplink(ctx, d.space, d.site, d.gates, d.maps, d.marks, g.Number); err != nil {
			d.uplink = nil
			return fmt.Errorf("make a way out for direct rules: %w", hint(err))
		}
		if err := d.space.in(d.inject.plug); err != nil {
			return err
		}
	}
	if d.uplink == nil {
		return nil
	}
	if err := d.setNamed(d.namedBy(p)); err != nil {
		return err
	}
	return d.keep(d.named) // the cable's own end among them
}

// namedBy are the single addresses that the policy names: by rules for ranges, and
// by names that were resolved to an address that their rule gives.
func (d *direct) namedBy(p *netpolicy.Policy) (named []netip.Addr) {
	for _, r := range p.Rules() {
		if prefix, ok := r.Pattern.Prefix(); ok && prefix.IsSingleIP() {
			named = append(named, prefix.Addr())
		}
	}
	for _, under := range d.book.pins.Values() {
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

// name lets direct flows reach one of the site's own addresses, if it is one that the rule gives.
func (d *direct) name(addr netip.Addr, p Permit) error {
	switch {
	case p.Via != netpolicy.Direct || slices.Contains(d.named, addr):
		return nil
	case d.uplink == nil:
		return errNoUplink
	}
	v := netpolicy.Decide(d.book.policy, netpolicy.Question{Name: p.Name, Addr: addr, Port: p.Port, Via: p.Via})
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

// keep has the programs deny what the site keeps, but for single addresses that are named.
func (d *direct) keep(named []netip.Addr) error {
	all, err := keptBy(d.site, named)
	if err != nil {
		return err
	}
	return d.book.kept.set(all)
}
