package fence

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/custody-project/custody/netpolicy"
)

var errNoUplink = errors.New("there is no way out for direct flows: the policy change that needs one failed")

// maxNamed bounds the site's own addresses that a sandbox may reach.
const maxNamed = 256

// Enforce puts a generation of the policy into force, for every packet from the moment that the programs see its
// number. It returns the flows that it ended, with the bytes they carried. Direct flows are reset on both sides; the
// gateway resets its own. Each of them has a revoke event, too. After an error that leaves the state of the programs
// uncertain, all packets are dropped.
func (f *Fence) Enforce(ctx context.Context, g netpolicy.Generation) ([]Flow, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !f.stands() {
		return nil, f.unraised
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return nil, net.ErrClosed
	case g.Number <= f.generation:
		return nil, fmt.Errorf("enforce generation %d: %d is in force already", g.Number, f.generation)
	}
	err := errors.Join(f.book.setRanges(g.Policy), f.book.revisit(g.Policy))
	if g.Policy.HasDirect() {
		err = errors.Join(err, f.keep(f.namedBy(g.Policy)))
	}
	err = errors.Join(err, f.maps.Generation.Set(g.Number))
	if g.Policy.HasDirect() && f.uplink != nil { // what waits for the rest of its datagram came in under the old one
		err = errors.Join(err, f.space.raiseWall(f.marks, g.Number))
	}
	if err != nil {
		f.seal()
		return nil, fmt.Errorf("enforce generation %d, nothing passes now: %w", g.Number, err)
	}
	f.generation = g.Number
	ends, _, err := f.review(now())
	if err != nil {
		f.seal()
		return nil, fmt.Errorf("end what generation %d does not allow, nothing passes now: %w", g.Number, err)
	}
	var ended []Flow
	for _, e := range ends {
		ended = append(ended, f.flow(e.key, &e.value))
		if !netpolicy.Synthetic.Contains(addrOf(e.key.Peer, e.key.Family)) {
			f.inject.reset(e.key, &e.value)
		}
	}
	f.nudge()
	return ended, f.connect(ctx, g.Policy)
}

// nudge has the watcher report what waits.
func (f *Fence) nudge() {
	if f.watcher != nil {
		_ = f.watcher.ring.Flush() // if it is closed, the watcher has ended
	}
}

// connect lays the cable for direct flows or takes it away, as the policy needs.
func (f *Fence) connect(ctx context.Context, p *netpolicy.Policy) (err error) {
	switch {
	case !p.HasDirect() && f.uplink != nil:
		u := f.uplink
		f.uplink, f.named = nil, nil
		f.inject.unplug()
		return u.close(f.marks)
	case p.HasDirect() && f.uplink == nil:
		if f.uplink, err = newUplink(ctx, f.space, f.site, f.gates, f.maps, f.marks, f.generation); err != nil {
			f.uplink = nil
			return fmt.Errorf("make a way out for direct rules: %w", hint(err))
		}
		if err := f.space.in(f.inject.plug); err != nil {
			return err
		}
	}
	if f.uplink == nil {
		return nil
	}
	if err := f.setNamed(f.namedBy(p)); err != nil {
		return err
	}
	return f.keep(f.named) // the cable's own end among them
}

// namedBy are the single addresses that the policy names: by rules for ranges, and
// by names that were resolved to an address that their rule gives.
func (f *Fence) namedBy(p *netpolicy.Policy) (named []netip.Addr) {
	for _, r := range p.Rules() {
		if prefix, ok := r.Pattern.Prefix(); ok && prefix.IsSingleIP() {
			named = append(named, prefix.Addr())
		}
	}
	for _, under := range f.book.pins.Values() {
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
func (f *Fence) name(addr netip.Addr, p Permit) error {
	switch {
	case p.Via != netpolicy.Direct || slices.Contains(f.named, addr):
		return nil
	case f.uplink == nil:
		return errNoUplink
	}
	v := netpolicy.Decide(f.book.policy, netpolicy.Question{Name: p.Name, Addr: addr, Port: p.Port, Via: p.Via})
	if !givenBy(v, addr) {
		return nil
	}
	return f.setNamed(append(slices.Clone(f.named), addr))
}

func (f *Fence) setNamed(named []netip.Addr) error {
	slices.SortFunc(named, netip.Addr.Compare)
	named = slices.Compact(named)
	if len(named) > maxNamed {
		return fmt.Errorf("more than %d single addresses are named: write them as ranges", maxNamed)
	}
	if slices.Equal(named, f.named) {
		return nil
	}
	if err := f.keep(named); err != nil {
		return err
	}
	if err := f.uplink.guard.write(named, f.uplink.forwarding.opened()); err != nil {
		return err
	}
	f.named = named
	return nil
}

// seal leaves only the walls.
func (f *Fence) seal() {
	if f.gates.shut() != nil {
		_ = f.gates.Admitted.Close() // which empties the table too
	}
}
