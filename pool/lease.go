package pool

import (
	"context"
	"errors"
	"time"
)

// ErrEnded is the error of Renew after the lease has ended: its sandbox is being destroyed.
var ErrEnded = errors.New("the lease of the sandbox has ended")

// Lease gives its holder the only right to use a sandbox. It ends with Release, when it has not been renewed for the TTL of the
// pool, or in Close. A sandbox that dies does not end its lease. Its methods are safe for concurrent use.
type Lease struct {
	pool   *Pool
	member *member
}

// Sandbox returns the sandbox, which the Maker of the pool has made.
func (l *Lease) Sandbox() Sandbox { return l.member.sandbox }

// Done is closed when the lease has ended.
func (l *Lease) Done() <-chan struct{} { return l.member.end }

// Renew extends the lease to the TTL from now. The holder calls it several times in each TTL. It returns ErrEnded after
// the end.
func (l *Lease) Renew() error {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	if l.member.state != leased || !time.Now().Before(l.member.expires) {
		return ErrEnded
	}
	l.member.expires = time.Now().Add(l.pool.opt.TTL)
	return nil
}

// Release ends the lease and waits until the sandbox is destroyed, or until ctx is done. The pool continues to destroy
// the sandbox after that. It can be called again, also after the lease has ended in another way.
func (l *Lease) Release(ctx context.Context) error {
	l.pool.mu.Lock()
	l.pool.end(l.member, Used)
	l.pool.mu.Unlock()
	select {
	case <-l.member.gone:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	return l.member.err
}
