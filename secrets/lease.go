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
//	         |  bury, for each grant: revoke until the broker confirms it
//	         v
//	      done       the record has the revoke event, or after some seconds an
//	                 expire event that says when the grant dies by itself
//
// There is no way back, and each way leads there.
type Lease struct {
	issuer   *Issuer
	step     string
	limit    moment             // no renewal goes beyond it
	bindings map[string]Binding // does not change

	begun    chan struct{} // closed when Begin returns
	over     chan struct{}
	life     context.Context // done when it is dead, whatever the reason
	die      context.CancelFunc
	renewing chan struct{} // held by the one Renew that asks

	mu           sync.Mutex // guards what follows; no other is taken under it
	grants       []*held
	values       map[string][]byte
	placeholders map[string]string
	delivered    bool
	dead         *over
	finished     bool // the step has ended
	refusals     map[string]int
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
func (l *Lease) held() []*held {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.grants)
}

// buried reports whether nothing is left to do for it.
func (l *Lease) buried() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := func(h *held) bool {
		select {
		case <-h.done:
			return false
		default:
			return true
		}
	}
	return l.dead != nil && l.finished && !slices.ContainsFunc(l.grants, open)
}

// mint asks each broker for what it serves, one after the other.
func (l *Lease) mint(ctx context.Context) error {
	requests, err := l.requests()
	if err != nil {
		return err
	}
	if err := l.hold(); err != nil {
		return err
	}
	for _, r := range requests {
		asked := l.issuer.now()
		g, err := r.broker.Mint(ctx, r.Request)
		if err != nil {
			return err
		}
		if err := l.keep(ctx, r, g, asked); err != nil {
			return err
		}
	}
	if len(requests) > 0 {
		l.issuer.start(l.watch)
	}
	return l.alive()
}

// hold makes the placeholders.
func (l *Lease) hold() error {
	for name, b := range l.bindings {
		if b.Deliver.Header == "" || b.Deliver.Env+b.Deliver.File == "" {
			continue
		}
		p, err := l.issuer.placeholders.make(name)
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.placeholders[name] = p
		l.mu.Unlock()
	}
	return nil
}

// keep takes what a broker minted into the lease. The grant is kept, to be revoked, even when something is wrong with
// it. Only the redactor sees a value before its minting is recorded.
func (l *Lease) keep(ctx context.Context, r request, g Grant, asked moment) error {
	i := l.issuer
	h := &held{grant: g, broker: r.broker.Name(), accessor: digest(g.Accessor()),
		until: l.reach(asked, g.Expires()), worst: l.doubt(), done: make(chan struct{})}
	for _, b := range r.Bindings {
		h.names = append(h.names, b.Name)
	}
	values := g.Values()
	err := errors.Join(fits(r.Bindings, values), l.short(g.Expires()))
	if err == nil {
		err = i.learn(ctx, l.step, values)
	}
	known := err == nil
	var events []audit.Event
	for _, b := range r.Bindings {
		ev := l.event(audit.SecretMint, h, "")
		ev.Secret.Name, ev.Secret.Via = b.Name, via(b.Deliver)
		if known {
			ev.Secret.Tag = i.cfg.Redactor.Tag(values[b.Name])
		}
		events = append(events, ev)
	}
	recorded := i.record(ctx, events...)
	if recorded != nil {
		h.unsaid = events
	}
	err = errors.Join(err, recorded, l.add(h, values))
	i.start(func() { l.listen(h) })
	return err
}

// fits refuses what is less than was asked for, or more.
func fits(bindings []Binding, values map[string][]byte) error {
	for _, b := range bindings {
		if len(values[b.Name]) == 0 {
			return fmt.Errorf("secret %s: the broker gave no value", b.Name)
		}
	}
	if len(values) != len(bindings) {
		return errors.New("the broker gave values that were not asked for")
	}
	return nil
}

// add puts a grant into the lease, and into its grave if that is dead already.
func (l *Lease) add(h *held, values map[string][]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants = append(l.grants, h)
	if l.dead != nil {
		wipe(values)
		go l.bury(h, l.dead)
		return l.dead
	}
	maps.Copy(l.values, values)
	return nil
}

func wipe(values map[string][]byte) {
	for _, v := range values {
		clear(v)
	}
	clear(values)
}

// Deliver writes down that the credentials are handed over, and then returns what goes into the
// step: of a header secret its placeholder, if anything.
func (l *Lease) Deliver(ctx context.Context) ([]Item, error) {
	var events []audit.Event
	for _, h := range l.held() {
		for _, name := range h.names {
			if v := via(l.bindings[name].Deliver); v != "" {
				ev := l.event(audit.SecretDeliver, h, "")
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
	err := l.issuer.record(ctx, events...)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.dead != nil:
		return nil, l.dead
	case err != nil:
		return nil, err
	}
	l.delivered = true
	return l.items(), nil
}

// items are what goes into the step; l.mu is held.
func (l *Lease) items() []Item {
	var items []Item
	for _, name := range slices.Sorted(maps.Keys(l.bindings)) {
		d := l.bindings[name].Deliver
		item := Item{Name: name, Env: d.Env + d.Token, File: d.File}
		if item.Env+item.File == "" {
			continue
		}
		if d.Header != "" {
			item.Value = []byte(l.placeholders[name])
		} else {
			item.Value = bytes.Clone(l.values[name])
		}
		items = append(items, item)
	}
	return items
}

// via is how a secret gets to a step, as the record calls it.
func via(d Deliver) string {
	var ways []string
	for _, w := range []struct{ name, to string }{{"header", d.Header}, {"env", d.Env}, {"file", d.File}, {"token", d.Token}} {
		if w.to != "" {
			ways = append(ways, w.name)
		}
	}
	return strings.Join(ways, ",")
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
	case l.left() <= 0: // and watch is about to notice
		return Credential{}, errors.New(errExpired("").guest)
	}
	return Credential{Header: d.Header, Value: bytes.Clone(l.values[secret]), Placeholder: l.placeholders[secret]}, nil
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
	_ = l.issuer.post(ctx, audit.Event{Kind: audit.KindSecret, Step: l.step, Secret: &audit.Secret{Op: audit.SecretRefuse, Reason: text}})
}

// cut shortens what others worded.
func cut(s string) string {
	const most = 500
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
