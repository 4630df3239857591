package fence

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/custody-project/custody/netpolicy"
)

// Enforce enforces a generation of the policy, for every packet from the moment when the programs read its number. It
// returns the flows that it ended, with their byte counts; each also has a revoke event. Direct flows are reset on both
// sides; the gateway resets its own. After an error that leaves the state of the programs uncertain, all packets are
// dropped.
func (f *Fence) Enforce(ctx context.Context, g netpolicy.Generation) ([]Flow, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !f.installed() {
		return nil, f.installErr
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return nil, net.ErrClosed
	case g.Number <= f.generation:
		return nil, fmt.Errorf("enforce generation %d: %d is already in force", g.Number, f.generation)
	}
	err := errors.Join(f.permits.setRanges(g.Policy, f.namespace.Ranges), f.permits.revisit(g.Policy))
	if g.Policy.HasDirect() {
		err = errors.Join(err, f.direct.keep(f.direct.namedBy(g.Policy)))
	}
	err = errors.Join(err, f.filters.maps.setGeneration(g.Number))
	if g.Policy.HasDirect() && f.direct.connected { // waiting fragments arrived under the old generation
		err = errors.Join(err, f.namespace.Fragments(g.Number))
	}
	if err != nil {
		f.seal()
		return nil, fmt.Errorf("enforce generation %d, nothing passes now: %w", g.Number, err)
	}
	f.generation = g.Number
	ends, _, err := f.ledger.review(now())
	if err != nil {
		f.seal()
		return nil, fmt.Errorf("end flows that generation %d does not allow, nothing passes now: %w", g.Number, err)
	}
	var ended []Flow
	for _, e := range ends {
		ended = append(ended, f.ledger.flow(e.key, &e.value))
		if !netpolicy.Synthetic.Contains(addrOf(e.key.Peer, e.key.Family)) {
			f.inject.reset(e.key, &e.value)
		}
	}
	f.nudge()
	return ended, f.direct.connect(ctx, g)
}

// nudge makes the watcher report pending events.
func (f *Fence) nudge() {
	if f.watcher != nil {
		_ = f.watcher.ring.Flush() // if it is closed, the watcher has ended
	}
}

// seal drops all packets.
func (f *Fence) seal() {
	f.filters.shut()
}
