package egress

import (
	"context"
	"fmt"

	"github.com/custody-project/custody/netpolicy/fence"
)

// Prepared is the guest's end of a network that is still to be described. Making it
// takes some milliseconds, in which a run can do other things. It belongs to one goroutine.
type Prepared struct {
	laid  chan struct{} // closed when fence and err are set
	fence *fence.Fence
	err   error

	taken bool
	bound chan struct{} // closed when to is set
	to    func(fence.Event)
}

// Prepare begins to make one. Close must be called in any case.
func Prepare(ctx context.Context) *Prepared {
	p := &Prepared{laid: make(chan struct{}), bound: make(chan struct{})}
	go func() {
		defer close(p.laid)
		p.fence, p.err = fence.New(ctx, fence.Options{Sighted: p.sighted})
	}()
	return p
}

// sighted hands on what the fence saw, once there is someone to take it.
func (p *Prepared) sighted(ev fence.Event) {
	<-p.bound
	p.to(ev)
}

// Network returns the way out through the fence. It may be called once.
func (p *Prepared) Network(o Options) (*Network, error) {
	if <-p.laid; p.err != nil {
		return nil, fmt.Errorf("the sandbox's network: %w", p.err)
	}
	n := newNetwork(p.fence, o)
	if err := n.assemble(); err != nil {
		return nil, err
	}
	p.taken = true
	p.bind(n.sighted)
	return n, nil
}

func (p *Prepared) bind(to func(fence.Event)) {
	p.to = to
	close(p.bound)
}

// Close removes the fence, unless a Network took it over.
func (p *Prepared) Close() error {
	if <-p.laid; p.taken || p.err != nil {
		return nil
	}
	p.bind(func(fence.Event) {})
	return p.fence.Close()
}

// Sweep puts back what runs that were killed have changed on the host.
func Sweep(ctx context.Context) error { return fence.Sweep(ctx) }
