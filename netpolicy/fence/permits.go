package fence

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/custody-project/custody/netpolicy"
)

// Limits for one sandbox. The programs' map has space for both.
const (
	maxNames = 131072 // synthetic addresses times ports
	maxPins  = 131072 // addresses of direct names times ports; the oldest answers are evicted
	maxUnder = 8      // names that share one address and port
)

const (
	resolverID = 1
	rangeBit   = 1 << 31
)

// permit is a Permit with its state.
type permit struct {
	Permit
	id    uint32
	addr  netip.Addr // of a direct name, else invalid
	dead  bool       // the policy does not allow it any more
	idle  bool       // unused when permitTable.sweep last ran
	until instant    // 0: for the sandbox's life
}

func (p *permit) allowedBy(policy *netpolicy.Policy) netpolicy.Verdict {
	return netpolicy.Decide(policy, netpolicy.Question{Name: p.Name, Addr: p.addr, Port: p.Port, Via: p.Via})
}

// permitTable has the permits, in addition to the programs' maps that enforce them. It is guarded by its fence's mu.
type permitTable struct {
	maps   *programs
	policy *netpolicy.Policy
	next   uint32
	byID   map[uint32]*permit
	names  map[programsTarget][]*permit              // synthetic addresses
	pins   *simplelru.LRU[programsTarget, []*permit] // direct names' addresses
	ranges map[uint32]bool                           // ids of the current generation
	known  map[netip.Addr]string                     // names of synthetic addresses
	kept   kept
	errs   []error // of evictions
}

func newPermitTable(maps *programs) *permitTable {
	b := &permitTable{
		maps: maps, next: resolverID + 1, byID: map[uint32]*permit{}, names: map[programsTarget][]*permit{},
		ranges: map[uint32]bool{}, known: map[netip.Addr]string{}, kept: kept{maps: maps},
	}
	b.byID[resolverID] = &permit{id: resolverID, Permit: Permit{Rule: "resolver", Via: netpolicy.Gateway}}
	b.pins, _ = simplelru.NewLRU(maxPins, func(t programsTarget, _ []*permit) { b.remove(t) }) // fails only for sizes below 1
	return b
}

// open allows the guest to begin flows to an address. It adds the id before the address, so that the programs find the
// id of every new flow.
func (b *permitTable) open(addr netip.Addr, p Permit, until time.Time) error {
	fresh, err := b.check(addr, p, until)
	if err != nil {
		return err
	}
	t := targetOf(addr, p.Port)
	under := b.under(t, p.Via)
	i := slices.IndexFunc(under, func(o *permit) bool { return o.Name == p.Name })
	if i >= 0 && under[i].Permit == fresh.Permit {
		fresh = under[i]
		fresh.until = limit(until)
	} else if err := b.enter(fresh); err != nil {
		return err
	}
	if i >= 0 {
		under = slices.Delete(slices.Clone(under), i, i+1)
	}
	if len(under) >= maxUnder {
		under = under[1:]
	}
	under = append(slices.Clone(under), fresh)
	if err := b.put(t, fresh); err != nil {
		return err
	}
	b.file(addr, t, p.Via, under)
	return errors.Join(b.takeErrs()...)
}

func limit(until time.Time) instant {
	if until.IsZero() {
		return 0
	}
	return max(at(until), 1)
}

// check returns an error if the policy in force does not allow a permit, even if an earlier decision allowed it.
func (b *permitTable) check(addr netip.Addr, p Permit, until time.Time) (*permit, error) {
	synthetic := netpolicy.Synthetic.Contains(addr)
	fresh := &permit{Permit: p, until: limit(until)}
	switch {
	case p.Name == "":
		return nil, errors.New("open an address: it has no name; ranges are opened by Enforce")
	case p.Via == netpolicy.Gateway && (!synthetic || netpolicy.Link4.Contains(addr)):
		return nil, fmt.Errorf("open %s for %s: not an address of the gateway", addr, p.Name)
	case p.Via == netpolicy.Direct && (synthetic || !addr.IsValid()):
		return nil, fmt.Errorf("open %s for %s: not an address for direct flows", addr, p.Name)
	case p.Via == netpolicy.Direct:
		fresh.addr = addr
	}
	v := fresh.allowedBy(b.policy)
	if !v.Allow {
		return nil, fmt.Errorf("open %s for %s %s: %s", addr, p.Name, p.Port, v.Reason)
	}
	if p.Via != netpolicy.Gateway && p.Via != netpolicy.Direct {
		return nil, fmt.Errorf("open %s for %s: %q is not a mode", addr, p.Name, p.Via)
	}
	if fresh.Rule == "" {
		fresh.Rule = v.RuleName()
	}
	if synthetic && len(b.names) >= maxNames && b.names[targetOf(addr, p.Port)] == nil {
		return nil, fmt.Errorf("open %s for %s: this sandbox has reached the limit of %d names' ports", addr, p.Name, maxNames)
	}
	return fresh, nil
}

func (b *permitTable) enter(p *permit) error {
	p.id = b.next
	if p.id >= rangeBit {
		return errors.New("this sandbox has used up its permits")
	}
	if err := b.maps.Ids.Put(p.id, uint32(1)); err != nil {
		return fmt.Errorf("note a permit: %w", err)
	}
	b.next++
	b.byID[p.id] = p
	return nil
}

func (b *permitTable) under(t programsTarget, via netpolicy.Mode) []*permit {
	if via == netpolicy.Gateway {
		return b.names[t]
	}
	under, _ := b.pins.Peek(t)
	return under
}

func (b *permitTable) file(addr netip.Addr, t programsTarget, via netpolicy.Mode, under []*permit) {
	if via == netpolicy.Gateway {
		b.names[t] = under
		b.known[addr] = under[len(under)-1].Name
		return
	}
	b.pins.Add(t, under)
}

func (b *permitTable) put(t programsTarget, p *permit) error {
	if err := b.maps.Permits.Put(t, programsPermit{Id: p.id, Expires: uint64(p.until)}); err != nil {
		return fmt.Errorf("open an address: %w", err)
	}
	return nil
}

func (b *permitTable) remove(t programsTarget) {
	if err := b.maps.Permits.Delete(t); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		b.errs = append(b.errs, fmt.Errorf("shut an address: %w", err))
	}
}

func (b *permitTable) takeErrs() []error {
	errs := b.errs
	b.errs = nil
	return errs
}

// revisit decides again on all permits, under the new policy, and removes those that it does not allow.
func (b *permitTable) revisit(policy *netpolicy.Policy) error {
	b.policy = policy
	for id, p := range b.byID {
		if id == resolverID || id&rangeBit != 0 || p.dead {
			continue
		}
		v := p.allowedBy(policy)
		if v.Allow {
			p.Rule = v.RuleName()
			continue
		}
		p.dead = true
		if err := b.maps.Ids.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			b.errs = append(b.errs, fmt.Errorf("end a permit: %w", err))
		}
	}
	for t, under := range b.names {
		if left, changed := b.reopen(t, under); len(left) == 0 {
			delete(b.names, t)
		} else if changed {
			b.names[t] = left
		}
	}
	for _, t := range b.pins.Keys() {
		under, _ := b.pins.Peek(t)
		if left, changed := b.reopen(t, under); len(left) == 0 {
			b.pins.Remove(t)
		} else if changed {
			b.pins.Add(t, left)
		}
	}
	return errors.Join(b.takeErrs()...)
}

// reopen removes the dead permits of an address, and gives the programs the last remaining one.
func (b *permitTable) reopen(t programsTarget, under []*permit) (left []*permit, changed bool) {
	if !slices.ContainsFunc(under, func(p *permit) bool { return p.dead }) {
		return under, false
	}
	last := under[len(under)-1]
	left = slices.DeleteFunc(slices.Clone(under), func(p *permit) bool { return p.dead })
	if len(left) == 0 {
		b.remove(t)
		return nil, true
	}
	if last.dead {
		if err := b.put(t, left[len(left)-1]); err != nil {
			b.remove(t)
			b.errs = append(b.errs, err)
		}
	}
	return left, true
}

// holds reports whether a flow may continue: it is the programs' decision, in Go.
func (b *permitTable) holds(k Key, f *programsFlow) bool {
	switch {
	case f.State&stateRevoked != 0:
		return false
	case f.Permit == resolverID:
		return true
	case !netpolicy.Synthetic.Contains(k.Dst.Addr()) && b.kept.has(k.Dst.Addr()):
		return false
	case f.Permit&rangeBit != 0:
		return netpolicy.Decide(b.policy, netpolicy.Question{Addr: k.Dst.Addr(), Port: k.port(), Via: netpolicy.Direct}).Allow
	}
	p := b.byID[f.Permit]
	return p != nil && !p.dead
}

// sweep removes permits that two consecutive sweeps found unused by addresses and flows.
func (b *permitTable) sweep(inUse map[uint32]bool) error {
	for _, under := range b.names {
		for _, p := range under {
			inUse[p.id] = true
		}
	}
	for _, under := range b.pins.Values() {
		for _, p := range under {
			inUse[p.id] = true
		}
	}
	for id, p := range b.byID {
		switch {
		case id == resolverID || inUse[id] || b.ranges[id]:
			p.idle = false
		case !p.idle:
			p.idle = true
		default:
			delete(b.byID, id)
			if err := b.maps.Ids.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("forget a permit: %w", err)
			}
		}
	}
	return nil
}

// explain returns the rule that is closest to a denied packet. The caller holds the fence's mu.
func (b *permitTable) explain(ev *Event, why int) {
	k := ev.Flow.Key
	ev.Flow.Rule = netpolicy.Default
	if k.Proto != "tcp" && k.Proto != "udp" || !k.Dst.Addr().IsValid() {
		return
	}
	ev.Flow.Port = k.port()
	q := netpolicy.Question{Addr: k.Dst.Addr(), Port: k.port(), Via: netpolicy.Direct}
	if name := b.known[k.Dst.Addr()]; name != "" {
		ev.Flow.Name, ev.Flow.Via = name, netpolicy.Gateway
		q = netpolicy.Question{Name: name, Port: k.port(), Via: netpolicy.Gateway}
	}
	v := netpolicy.Decide(b.policy, q)
	ev.Flow.Rule = v.RuleName()
	if why == notPermitted && v.Reason != "" {
		ev.Reason = string(v.Reason)
	}
}
