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

// Change is the result of a change of policy.
type Change struct {
	Generation uint32
	Digest     string
	Previous   string
	Ended      int // flows that the new policy does not allow
}

// ErrNotOpen means that the network has not begun, or has ended.
var ErrNotOpen = errors.New("the run's network is not open: the run is starting or ending")

// Change enforces a new policy. It records the policy first. From then on the policy applies to every packet, query and
// request, and flows that it does not allow are ended. After an error either the previous policy applies, or all traffic
// is denied. ctx bounds only the recording: a recorded policy is always enforced.
func (n *Network) Change(ctx context.Context, p *netpolicy.Policy) (Change, error) {
	n.change.Lock()
	defer n.change.Unlock()
	if n.live.Current().Number == 0 || n.ended {
		return Change{}, ErrNotOpen // it must not be followed by the policy that the run begins with
	}
	return n.enforce(ctx, p)
}

// enforce must be called with change locked for writing.
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
		if f.Via == netpolicy.Direct { // the gateway counts its own flows
			c.Ended++
		}
	}
	if err != nil {
		return Change{}, fmt.Errorf("enforce the policy: %w", err)
	}
	return c, errors.Join(n.reopen(), n.listen())
}

// canOpen returns an error if the guest does not trust certificates for a name for which the policy opens TLS: the guest
// trusts an authority that can issue certificates only for the names of the first policy.
func (n *Network) canOpen(p *netpolicy.Policy) error {
	trusted := opened(n.options.Policy)
	for _, name := range opened(p) {
		if !slices.Contains(trusted, name) {
			return fmt.Errorf("%s cannot get http in a live run: the names for which the gateway may open TLS are set when the guest starts; begin a new run", name)
		}
	}
	return nil
}

func (n *Network) recordChange(ctx context.Context, c Change, p *netpolicy.Policy) error {
	ev := audit.Policy{Generation: c.Generation, Digest: c.Digest, Previous: c.Previous}
	for _, r := range p.Rules() {
		ev.Rules = append(ev.Rules, audit.Text(r.String()))
	}
	_, err := n.annotator.Record(ctx, audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindPolicy, Policy: &ev})
	return err
}

// reopen opens the addresses that the guest has received and the new policy allows.
func (n *Network) reopen() error {
	var errs []error
	for addr, e := range n.names.issued() {
		errs = append(errs, n.open(e.name, addr, netpolicy.Gateway, time.Time{}, e.seq))
	}
	return errors.Join(errs...)
}

// listen makes the gateway listen on exactly the ports that rules name.
func (n *Network) listen() error {
	wanted := n.live.Current().Policy.TCPPorts()
	for port, listener := range n.listeners {
		if !slices.Contains(wanted, port) {
			listener.Close()
			delete(n.listeners, port)
		}
	}
	for _, port := range wanted {
		if n.listeners[port] != nil {
			continue
		}
		listener, err := n.fence.Listen(context.Background(), "tcp4", net.JoinHostPort("0.0.0.0", strconv.Itoa(int(port))))
		if err != nil {
			return fmt.Errorf("the gateway cannot listen on port %d: %w", port, err)
		}
		n.listeners[port] = listener
		n.serving.Go(func() {
			if err := n.gateway.Serve(context.Background(), listener); err != nil && !errors.Is(err, net.ErrClosed) {
				n.options.Notice(fmt.Sprintf("the gateway failed on port %d, which is closed now: %v", port, err))
			}
		})
	}
	return nil
}
