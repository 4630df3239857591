package fence

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/custody-project/custody/netpolicy"
)

var errNoUplink = errors.New("direct flows have no uplink: the policy change that needs one failed")

// maxNamed bounds the number of host addresses that rules may name.
const maxNamed = 256

var errManyNamed = fmt.Errorf("more than %d single addresses are named: write them as ranges", maxNamed)

// direct manages the uplink for direct flows, which exists while the policy has direct rules. It is guarded by its
// fence's mu.
type direct struct {
	namespace namespace
	host      *netlink.Handle
	filters   *Filters
	inject    *injector
	permits   *permitTable
	connected bool         // there is an uplink
	named     []netip.Addr // single addresses that the policy names; empty without an uplink
}

// connect makes or removes the uplink, depending on the policy.
func (d *direct) connect(ctx context.Context, g netpolicy.Generation) error {
	p := g.Policy
	switch {
	case !p.HasDirect() && d.connected:
		d.connected, d.named = false, nil
		d.inject.closeUplink()
		return d.namespace.Disconnect()
	case p.HasDirect() && !d.connected:
		raw4, raw6, err := d.namespace.Connect(ctx, g.Number)
		if err != nil {
			return fmt.Errorf("make the uplink for direct rules: %w", hint(err))
		}
		d.inject.openUplink(raw4, raw6)
		d.connected = true
		if err := d.filters.admit(fromUplink); err != nil {
			return err
		}
	}
	if !d.connected {
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
	case !d.connected:
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
		return errManyNamed
	}
	if slices.Equal(named, d.named) {
		return nil
	}
	if err := d.keep(named); err != nil {
		return err
	}
	if err := d.namespace.Guard(named); err != nil {
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
