package egress

import (
	"context"
	"fmt"

	"github.com/custody-project/custody/netpolicy/fence"
)

// Prepared is a fence without a policy. To make it takes some milliseconds, in which a run can do other work. It is not
// safe for concurrent use.
type Prepared struct {
	laid  chan struct{} // closed when fence and err are set
	fence *fence.Fence
	err   error

	taken bool
	bound chan struct{} // closed when to is set
	to    func(fence.Event)
}

// Prepare begins to make a fence. The caller must call Close in any case.
func Prepare(open func(fence.Options) (*fence.Fence, error)) *Prepared {
	p := &Prepared{laid: make(chan struct{}), bound: make(chan struct{})}
	go func() {
		defer close(p.laid)
		p.fence, p.err = open(fence.Options{Observed: p.observed})
	}()
	return p
}

// Install installs the fence's packet filters, which drop all packets until the run's policy is enforced.
func (p *Prepared) Install() error {
	if <-p.laid; p.err != nil {
		return p.err
	}
	return p.fence.Install()
}

// observed passes on the fence's events, once there is a Network to receive them.
func (p *Prepared) observed(ev fence.Event) {
	<-p.bound
	p.to(ev)
}

// Network returns the network that uses the fence. It may be called once.
func (p *Prepared) Network(o Options) (*Network, error) {
	if <-p.laid; p.err != nil {
		return nil, fmt.Errorf("the sandbox's network: %w", p.err)
	}
	if o.Rate > 0 {
		if err := p.fence.Limit(o.Rate); err != nil {
			return nil, fmt.Errorf("the sandbox's network: %w", err)
		}
	}
	n := newNetwork(p.fence, o)
	if err := n.assemble(); err != nil {
		return nil, err
	}
	p.taken = true
	p.bind(n.observed)
	return n, nil
}

func (p *Prepared) bind(to func(fence.Event)) {
	p.to = to
	close(p.bound)
}

// Close removes the fence, unless a Network uses it.
func (p *Prepared) Close() error {
	if <-p.laid; p.taken || p.err != nil {
		return nil
	}
	p.bind(func(fence.Event) {})
	return p.fence.Close()
}

// Sweep undoes the changes to the host of runs that were killed.
func Sweep(ctx context.Context) error { return fence.Sweep(ctx) }
