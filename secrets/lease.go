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

// Lease is the lease of one step's credentials. It is safe for concurrent use.
//
//	Begin       all brokers granted          Deliver
//	-----> begun ---------------> minted -------> delivered --+
//	         |                       |              |   ^     | Renew, after a proof of life:
//	         |                       |              |   +------+ each grant is valid for TTL again
//	         +-----------------------+--------------+
//	         |  kill: End, expiry, lost by its broker, anomaly, RevokeAll
//	         v
//	       dead        values wiped, no more deliveries; Over is closed, unless by End
//	         |
//	         |  for each grant (see held): revoke until the broker confirms it
//	         v
//	       done        the revoke event is recorded, or after some seconds an
//	                   expire event with the time when the grant expires
//
// All transitions are one-way.
type Lease struct {
	issuer   *Issuer
	step     string
	term     term
	bindings map[string]Binding // does not change

	begun    chan struct{} // closed when Begin returns
	over     chan struct{}
	life     context.Context // done when the lease is dead, for whatever reason
	die      context.CancelFunc
	renewing chan struct{} // held by the current Renew

	mu        sync.Mutex // guards the fields below; a grant's lock may be taken under it, and no other
	grants    grants
	contents  contents
	delivered bool
	dead      *over
	finished  bool // the step has ended
	refusals  map[string]int
}

// Over returns a channel that is closed when the credentials end before End; Err returns the reason.
func (l *Lease) Over() <-chan struct{} { return l.over }

// Err returns why the credentials have ended; nil while they are alive, and after an End that found them alive.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead == nil || l.dead.why == ended {
		return nil
	}
	return l.dead
}

// alive returns an error when the credentials have ended, also after End.
func (l *Lease) alive() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead != nil {
		return l.dead
	}
	return nil
}

func (l *Lease) live() bool { return l.alive() == nil }

// within returns a context that ends with ctx or the lease.
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

// settled reports whether all its grants have ended.
func (l *Lease) settled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead != nil && l.finished && l.grants.over()
}

// add adds a grant to the lease, and revokes it if the lease has ended.
func (l *Lease) add(h *held, values map[string][]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants = append(l.grants, h)
	if l.dead != nil {
		wipe(values)
		go h.revokeUntilDead(l.dead)
		return l.dead
	}
	maps.Copy(l.contents.values, values)
	return nil
}

// Deliver records the delivery, and then returns the items for the step: for a header secret its placeholder, if the
// step has one.
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

// credential is Issuer.Credential for the chosen lease.
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
	case l.grants.left() <= 0: // watch is about to notice this
		return Credential{}, errors.New(errExpired("").guest)
	}
	return Credential{Header: d.Header, Value: bytes.Clone(l.contents.values[secret]), Placeholder: l.contents.placeholders[secret]}, nil
}

// Refused records a refused request in the step's name. Repetitions of one reason are recorded at the first, second,
// fourth, eighth ... time.
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
	// Without a record the request is refused all the same.
	_ = l.issuer.journal.post(ctx, audit.Event{Kind: audit.KindSecret, Step: l.step, Secret: &audit.Secret{Op: audit.SecretRefuse, Reason: text}})
}

// cut shortens text from other parties.
func cut(s string) string {
	const most = 500
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
