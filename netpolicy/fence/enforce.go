package fence

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/custody-project/custody/netpolicy"
)

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
		err = errors.Join(err, f.direct.keep(f.direct.namedBy(g.Policy)))
	}
	err = errors.Join(err, f.maps.Generation.Set(g.Number))
	if g.Policy.HasDirect() && f.direct.uplink != nil { // what waits for the rest of its datagram came in under the old one
		err = errors.Join(err, f.space.raiseWall(f.marks, g.Number))
	}
	if err != nil {
		f.seal()
		return nil, fmt.Errorf("enforce generation %d, nothing passes now: %w", g.Number, err)
	}
	f.generation = g.Number
	ends, _, err := f.ledger.review(now())
	if err != nil {
		f.seal()
		return nil, fmt.Errorf("end what generation %d does not allow, nothing passes now: %w", g.Number, err)
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

// nudge has the watcher report what waits.
func (f *Fence) nudge() {
	if f.watcher != nil {
		_ = f.watcher.ring.Flush() // if it is closed, the watcher has ended
	}
}

// seal leaves only the walls.
func (f *Fence) seal() {
	if f.gates.shut() != nil {
		_ = f.gates.Admitted.Close() // which empties the table too
	}
}
