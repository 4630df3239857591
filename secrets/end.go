package secrets

import (
	"context"
	"errors"
	"fmt"

	"github.com/custody-project/custody/audit"
)

// abandon ends a lease after Begin failed.
func (l *Lease) abandon(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	ev := audit.Event{Kind: audit.KindSecret, Step: l.step, Secret: &audit.Secret{Op: audit.SecretRefuse, Reason: cut(cause.Error())}}
	recorded := l.issuer.journal.post(ctx, ev)
	l.finish("the step did not get all its credentials")
	return errors.Join(cause, recorded, l.held().confirmed(ctx))
}

// End revokes the credentials if they are alive, and wipes the values. It returns when the brokers have confirmed the
// revocation, or after some seconds, even if ctx has ended, with an error that states until when a credential may be
// alive; the revocation is retried until then. End may be called repeatedly.
func (l *Lease) End(ctx context.Context, reason string) error {
	l.finish(reason)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	return l.held().confirmed(ctx)
}

func (l *Lease) finish(reason string) {
	if o := errEnded(reason); l.dies(o) {
		l.withdraw(o) // before the next step sends requests
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finished = true
}

// kill ends the use of the credentials on the host's side immediately, and starts their revocation. It does not block:
// its caller may be sending a request that must be withdrawn.
func (l *Lease) kill(o *over) {
	if l.dies(o) {
		l.issuer.start(func() { l.withdraw(o) })
	}
}

// dies marks the lease dead, and reports whether it was alive. The first reason is kept.
func (l *Lease) dies(o *over) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead != nil {
		return false
	}
	l.dead = o
	l.contents.wipe()
	l.die()
	if o.why != ended {
		close(l.over)
	}
	for _, h := range l.grants {
		go h.revokeUntilDead(o)
	}
	return true
}

// withdraw ends the requests that carry one of the credentials.
func (l *Lease) withdraw(o *over) {
	if l.issuer.cfg.Withdrawn == nil {
		return
	}
	for name, b := range l.bindings {
		if b.Deliver.Header != "" {
			l.issuer.cfg.Withdrawn(name, o.guest)
		}
	}
}

// settle waits for the revocation of a dead lease's grants. Without an error they are revoked, and that is recorded.
func (l *Lease) settle(ctx context.Context) error {
	select {
	case <-l.begun:
	case <-ctx.Done():
	}
	select {
	case <-l.begun:
		return l.held().confirmed(ctx)
	default:
		return fmt.Errorf("the credentials of step %q are still being minted: %w", l.step, ctx.Err())
	}
}
