package hostd

import (
	"context"
	"fmt"

	"github.com/custody-project/custody/netpolicy/fence"
)

// Network is a sandbox's network namespace. To make it takes some milliseconds, in which a run can do other work. It is not safe for
// concurrent use.
type Network struct {
	made  chan struct{} // closed when space and err are set
	space *fence.Namespace
	err   error
}

// PrepareNetwork begins to make a network. The caller must call Close in any case.
func PrepareNetwork(ctx context.Context) *Network {
	n := &Network{made: make(chan struct{})}
	go func() {
		defer close(n.made)
		n.space, n.err = fence.NewNamespace(ctx)
	}()
	return n
}

// open waits for the namespace.
func (n *Network) open() (*fence.Namespace, error) {
	if <-n.made; n.err != nil {
		return nil, fmt.Errorf("the sandbox's network: %w", n.err)
	}
	return n.space, nil
}

// Close removes the network. It may be called repeatedly.
func (n *Network) Close() error {
	if <-n.made; n.space == nil {
		return nil
	}
	space := n.space
	n.space = nil
	return space.Close()
}
