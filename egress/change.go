package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

// Change is what a change of policy came to.
type Change struct {
	Generation uint32
	Digest     string
	Previous   string
	Ended      int // flows that the new policy does not allow
}

// ErrNotOpen means that a network has not begun yet, or has ended.
var ErrNotOpen = errors.New("the run's network is not open: the run is just beginning or ending")

// Change puts a policy into force: it is recorded first, holds for every
// packet, question and request from then on, and ends the flows that it does not allow.
// When it fails the policy before it may hold, or nothing passes at all. The context
// bounds the recording only: what is recorded takes effect.
func (n *Network) Change(ctx context.Context, p *netpolicy.Policy) (Change, error) {
	n.change.Lock()
	defer n.change.Unlock()
	if n.live.Current().Number == 0 || n.ended {
		return Change{}, ErrNotOpen // the policy that a run begins with must not come after this one
	}
	return n.enforce(ctx, p)
}

// enforce runs with change held for writing.
func (n *Network) enforce(ctx context.Context, p *netpolicy.Policy) (Change, error) {
	before := n.live.Current()
	if err := n.canOpen(p); err != nil {
		return Change{}, err
	}
	c := Change{Generation: before.Number + 1, Digest: p.Digest()}
	if before.Number > 0 {
		c.Previous = before.Policy.Digest()
	}
	if err := n.recordChange(ctx, c, p); err != nil {
		return Change{}, fmt.Errorf("record the policy: %w", err)
	}
	ctx = context.WithoutCancel(ctx)
	ended, err := n.fence.Enforce(ctx, n.live.Set(p))
	c.Ended = n.gateway.Recheck(ctx)
	for _, f := range ended {
		if f.Via == netpolicy.Direct { // the gateway has counted its own
			c.Ended++
		}
	}
	if err != nil {
		return Change{}, fmt.Errorf("enforce the policy: %w", err)
	}
	return c, errors.Join(n.reopen(), n.listen())
}

// canOpen refuses what cannot be changed in a sandbox that lives: its guest
// trusts an authority that can issue certificates for the names of its first policy only.
func (n *Network) canOpen(p *netpolicy.Policy) error {
	trusted := opened(n.options.Policy)
	for _, name := range opened(p) {
		if !slices.Contains(trusted, name) {
			return fmt.Errorf("%s cannot get http in a live run: the names for which TLS may be opened are set when the guest starts; begin a new run", name)
		}
	}
	return nil
}

func (n *Network) recordChange(ctx context.Context, c Change, p *netpolicy.Policy) error {
	ev := audit.Policy{Generation: c.Generation, Digest: c.Digest, Previous: c.Previous}
	for _, r := range p.Rules() {
		ev.Rules = append(ev.Rules, audit.Text(r.String()))
	}
	_, err := n.witness.Record(ctx, audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindPolicy, Policy: &ev})
	return err
}

// reopen opens what the new policy allows of the names that the guest knows.
func (n *Network) reopen() error {
	var errs []error
	for addr, e := range n.book.told() {
		errs = append(errs, n.open(e.name, addr, netpolicy.Gateway, time.Time{}, e.seq))
	}
	return errors.Join(errs...)
}

// listen has the gateway listen on the ports that rules name, and on no other.
func (n *Network) listen() error {
	wanted := n.live.Current().Policy.TCPPorts()
	for port, door := range n.doors {
		if !slices.Contains(wanted, port) {
			door.Close()
			delete(n.doors, port)
		}
	}
	for _, port := range wanted {
		if n.doors[port] != nil {
			continue
		}
		door, err := n.fence.Listen(context.Background(), "tcp4", net.JoinHostPort("0.0.0.0", strconv.Itoa(int(port))))
		if err != nil {
			return fmt.Errorf("listen for the gateway on port %d: %w", port, err)
		}
		n.doors[port] = door
		n.serving.Go(func() {
			if err := n.gateway.Serve(context.Background(), door); err != nil && !errors.Is(err, net.ErrClosed) {
				n.options.Notice(fmt.Sprintf("the gateway ended on port %d, which is closed now: %v", port, err))
			}
		})
	}
	return nil
}
