package secrets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/custody-project/custody/audit"
)

// minting mints the credentials of a lease.
type minting struct {
	issuer *Issuer
	lease  *Lease
}

// run calls each broker in turn.
func (m *minting) run(ctx context.Context) error {
	l := m.lease
	requests, err := m.requests()
	if err != nil {
		return err
	}
	if err := m.hold(); err != nil {
		return err
	}
	for _, r := range requests {
		asked := m.issuer.now()
		g, err := r.broker.Mint(ctx, r.Request)
		if err != nil {
			return err
		}
		if err := m.keep(ctx, r, g, asked); err != nil {
			return err
		}
	}
	if len(requests) > 0 {
		m.issuer.start(l.watch)
	}
	return l.alive()
}

// hold makes the placeholders.
func (m *minting) hold() error {
	l := m.lease
	for name, b := range l.bindings {
		if b.Deliver.Header == "" || b.Deliver.Env+b.Deliver.File == "" {
			continue
		}
		p, err := m.issuer.placeholders.make(name)
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.contents.placeholders[name] = p
		l.mu.Unlock()
	}
	return nil
}

// keep adds a minted grant to the lease. It adds the grant even if it is invalid, so that it is revoked. Only the
// redactor gets a value before its minting is recorded.
func (m *minting) keep(ctx context.Context, r request, g Grant, asked moment) error {
	l, i := m.lease, m.issuer
	h := &held{issuer: i, step: l.step, term: l.term, grant: g, broker: r.broker.Name(), accessor: digest(g.Accessor()),
		until: l.term.reach(asked, g.Expires()), worst: l.term.doubt(), done: make(chan struct{})}
	for _, b := range r.Bindings {
		h.names = append(h.names, b.Name)
	}
	values := g.Values()
	err := errors.Join(fits(r.Bindings, values), l.term.short(g.Expires()))
	if err == nil {
		err = i.learn(ctx, l.step, values)
	}
	known := err == nil
	var events []audit.Event
	for _, b := range r.Bindings {
		ev := h.event(audit.SecretMint, "")
		ev.Secret.Name, ev.Secret.Via = b.Name, via(b.Deliver)
		if known {
			ev.Secret.Tag = i.cfg.Redactor.Tag(values[b.Name])
		}
		events = append(events, ev)
	}
	recorded := i.journal.record(ctx, events...)
	if recorded != nil {
		h.unsaid = events
	}
	err = errors.Join(err, recorded, l.add(h, values))
	i.start(func() { h.listen(func(what string) { i.misused(l, h, what) }) })
	return err
}

// fits returns an error if the grant has missing or additional values.
func fits(bindings []Binding, values map[string][]byte) error {
	for _, b := range bindings {
		if len(values[b.Name]) == 0 {
			return fmt.Errorf("secret %s: the broker granted no value", b.Name)
		}
	}
	if len(values) != len(bindings) {
		return errors.New("the broker granted values that were not requested")
	}
	return nil
}

// request is the request to one broker.
type request struct {
	broker Broker
	Request
}

// scheme returns the scheme of b's source.
func scheme(b Binding) string {
	s, _, _ := strings.Cut(b.From, ":")
	return s
}

// requests groups the lease's bindings by broker, in the order of the brokers' names.
func (m *minting) requests() ([]request, error) {
	l, c := m.lease, &m.issuer.cfg
	by := map[string]*request{}
	for _, name := range slices.Sorted(maps.Keys(l.bindings)) {
		b := l.bindings[name]
		broker := c.Brokers[scheme(b)]
		if broker == nil { // the source may be a misplaced value, so it is not repeated
			return nil, fmt.Errorf("secret %s: no broker here serves its source", name)
		}
		r := by[broker.Name()]
		if r == nil {
			r = &request{broker, Request{Run: c.Run, Step: l.step, Limit: l.term.left(), Dir: c.Dir}}
			by[broker.Name()] = r
		}
		r.Bindings = append(r.Bindings, b)
	}
	var list []request
	for _, name := range slices.Sorted(maps.Keys(by)) {
		list = append(list, *by[name])
	}
	return list, nil
}
