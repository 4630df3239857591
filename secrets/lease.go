package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/custody-project/custody/audit"
)

// Lease is what one step has of credentials. It is safe for concurrent use.
//
//	Begin        all brokers gave        Deliver
//	-----> begun ---------------> minted -------> delivered --+
//	         |                       |              |  ^      | Renew, after a proof of life:
//	         |                       |              |  +------+ each grant lives for TTL again
//	         +-----------------------+--------------+
//	         |  kill: End, expiry, lost by its broker, anomaly, RevokeAll
//	         v
//	       dead      values wiped, nothing given any more; Over is closed, unless by End
//	         |
//	         |  bury, for each grant (see held): revoke until the broker confirms it
//	         v
//	      done       the record has the revoke event, or after some seconds an
//	                 expire event that says when the grant dies by itself
//
// There is no way back, and each way leads there.
type Lease struct {
	issuer   *Issuer
	step     string
	term     term
	bindings map[string]Binding // does not change

	begun    chan struct{} // closed when Begin returns
	over     chan struct{}
	life     context.Context // done when it is dead, whatever the reason
	die      context.CancelFunc
	renewing chan struct{} // held by the one Renew that asks

	mu        sync.Mutex // guards what follows; a grant's may be taken under it, and no other
	grants    grants
	contents  contents
	delivered bool
	dead      *over
	finished  bool // the step has ended
	refusals  map[string]int
}

// Over is closed when the credentials are dead before End; Err returns the reason.
func (l *Lease) Over() <-chan struct{} { return l.over }

// Err returns why the credentials are dead; nil while they live and after an End that found them alive.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead == nil || l.dead.why == ended {
		return nil
	}
	return l.dead
}

// alive returns an error when the credentials are dead, after End as well.
func (l *Lease) alive() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead != nil {
		return l.dead
	}
	return nil
}

func (l *Lease) live() bool { return l.alive() == nil }

// within returns a context that is done with ctx or when the lease is dead.
func (l *Lease) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(l.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// after reports whether the step has ended.
func (l *Lease) after() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.finished
}

// held returns the grants.
func (l *Lease) held() grants {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.grants)
}

// buried reports whether nothing is left to do for it.
func (l *Lease) buried() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead != nil && l.finished && l.grants.over()
}

// add puts a grant into the lease, and into its grave if that is dead already.
func (l *Lease) add(h *held, values map[string][]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants = append(l.grants, h)
	if l.dead != nil {
		wipe(values)
		go h.bury(l.dead)
		return l.dead
	}
	maps.Copy(l.contents.values, values)
	return nil
}

// Deliver records that the credentials are delivered, and then returns what goes into the
// step: of a header secret its placeholder, if anything.
func (l *Lease) Deliver(ctx context.Context) ([]Item, error) {
	var events []audit.Event
	for _, h := range l.held() {
		for _, name := range h.names {
			if v := via(l.bindings[name].Deliver); v != "" {
				ev := h.event(audit.SecretDeliver, "")
				ev.Secret.Name, ev.Secret.Via = name, v
				events = append(events, ev)
			}
		}
	}
	if err := l.alive(); err != nil {
		return nil, err
	}
	ctx, cancel := l.within(ctx)
	defer cancel()
	err := l.issuer.journal.record(ctx, events...)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.dead != nil:
		return nil, l.dead
	case err != nil:
		return nil, err
	}
	l.delivered = true
	return l.contents.items(), nil
}

// credential is Issuer.Credential for the lease that it chose.
func (l *Lease) credential(secret string) (Credential, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.bindings[secret].Deliver
	switch {
	case l.dead != nil:
		return Credential{}, errors.New(l.dead.guest)
	case d.Header == "":
		return Credential{}, fmt.Errorf("the secret %q is not for a header", secret)
	case !l.delivered:
		return Credential{}, errors.New("the step does not have its credentials yet")
	case l.grants.left() <= 0: // and watch is about to notice
		return Credential{}, errors.New(errExpired("").guest)
	}
	return Credential{Header: d.Header, Value: bytes.Clone(l.contents.values[secret]), Placeholder: l.contents.placeholders[secret]}, nil
}

// Refused records that something was asked for in the step's name that is not given. A
// flood of one reason is recorded at its first, second, fourth, eighth ... time.
func (l *Lease) Refused(ctx context.Context, reason string) {
	const reasons = 64
	l.mu.Lock()
	if _, ok := l.refusals[reason]; !ok && len(l.refusals) >= reasons {
		reason = "and more, for other reasons"
	}
	l.refusals[reason]++
	n := l.refusals[reason]
	l.mu.Unlock()
	if n&(n-1) != 0 {
		return
	}
	text := cut(reason)
	if n > 1 {
		text = fmt.Sprintf("%s (%d times by now)", text, n)
	}
	// Without a record of it the answer is still no.
	_ = l.issuer.journal.post(ctx, audit.Event{Kind: audit.KindSecret, Step: l.step, Secret: &audit.Secret{Op: audit.SecretRefuse, Reason: text}})
}

// cut shortens what others worded.
func cut(s string) string {
	const most = 500
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
