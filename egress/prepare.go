package egress

import (
	"context"
	"fmt"

	"github.com/custody-project/custody/netpolicy/fence"
)

// Prepared is a fence on its way. Making one takes some milliseconds, in which
// a run can do other things. It belongs to one goroutine.
type Prepared struct {
	made  chan struct{} // closed when fence and err are set
	fence *fence.Fence
	err   error

	taken bool
	bound chan struct{} // closed when to is set
	to    func(fence.Event)
}

// Prepare begins to make a fence. Close must be called in any case.
func Prepare(ctx context.Context) *Prepared {
	p := &Prepared{made: make(chan struct{}), bound: make(chan struct{})}
	go func() {
		defer close(p.made)
		p.fence, p.err = fence.New(ctx, fence.Options{Sighted: p.sighted})
	}()
	return p
}

// sighted hands on what the fence saw, once there is somebody to take it.
func (p *Prepared) sighted(ev fence.Event) {
	<-p.bound
	p.to(ev)
}

// Network returns the way out through the fence. It may be called once.
func (p *Prepared) Network(o Options) (*Network, error) {
	<-p.made
	if p.err != nil {
		return nil, fmt.Errorf("the sandbox's network: %w", p.err)
	}
	n := newNetwork(p.fence, o)
	if err := n.assemble(); err != nil {
		return nil, err
	}
	p.taken = true
	p.to = n.sighted
	close(p.bound)
	return n, nil
}

// Close waits for the fence and removes it, unless a Network took it over.
func (p *Prepared) Close() error {
	<-p.made
	if p.taken || p.err != nil {
		return nil
	}
	p.to = func(fence.Event) {}
	close(p.bound)
	return p.fence.Close()
}
