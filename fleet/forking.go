package fleet

import (
	"context"
	"maps"
	"time"
)

// maxForkings bounds the forks of a tenant that are remembered by their idempotency keys.
const maxForkings = 1000

// forking is a fork with an idempotency key. All who ask with this key wait for the same one.
type forking struct {
	of       *Sandbox
	n        int
	metadata map[string]string
	done     chan struct{} // closed when the fields below are set
	forks    []*Sandbox
	err      error
}

// same reports whether a repetition asks for the same.
func (a *forking) same(b *forking) bool {
	return a.of == b.of && a.n == b.n && (a.metadata == nil) == (b.metadata == nil) && maps.Equal(a.metadata, b.metadata)
}

// ForkOnce is Fork with an idempotency key: a repetition waits for the first attempt, and returns its sandboxes. The attempt continues if ctx ends before. One
// that has failed is forgotten; the others are remembered as long as a sandbox after its end.
func (f *Fleet) ForkOnce(ctx context.Context, key string, s *Sandbox, n int, caller string, metadata map[string]string) ([]*Sandbox, error) {
	a, err := f.forking(attempt(s, key), &forking{of: s, n: n, metadata: metadata, done: make(chan struct{})}, caller)
	if err != nil {
		return nil, err
	}
	select {
	case <-a.done:
		return a.forks, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func attempt(s *Sandbox, name string) key { return key{tenant: s.request.Tenant, name: name} }

// forking returns the attempt with a key, and begins it if there is none.
func (f *Fleet) forking(k key, wanted *forking, caller string) (*forking, error) {
	if len(k.name) > maxKey {
		return nil, invalid("the idempotency key has %d bytes: use at most %d", len(k.name), maxKey)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, &Error{ErrEnded, "the service is shutting down: try again later"}
	}
	if a := f.forkings[k]; a != nil {
		if !a.same(wanted) {
			return nil, conflict("the idempotency key was used for another request: use a new key")
		}
		return a, nil
	}
	if f.forkingsOf(k.tenant) >= maxForkings {
		return nil, conflict("the tenant has %d forks with idempotency keys: try again later", maxForkings)
	}
	f.forkings[k] = wanted
	f.work.Go(func() { f.carryOutFork(k, wanted, caller) })
	return wanted, nil
}

// forkingsOf returns the number of a tenant's attempts. The caller holds mu.
func (f *Fleet) forkingsOf(tenant string) (n int) {
	for k := range f.forkings {
		if k.tenant == tenant {
			n++
		}
	}
	return n
}

func (f *Fleet) carryOutFork(k key, a *forking, caller string) {
	a.forks, a.err = f.Fork(f.ctx, a.of, a.n, caller, a.metadata)
	close(a.done)
	forget := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.forkings, k)
	}
	if a.err != nil {
		forget()
		return
	}
	time.AfterFunc(f.config.Keep, forget)
}
