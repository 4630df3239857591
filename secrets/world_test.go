package secrets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redact"
)

// A world is an issuer with faulty brokers and a real recorder over a log in memory. The tests run in testing/synctest
// bubbles, with a fake clock.
type world struct {
	t      *testing.T
	log    *memory
	red    *redact.Redactor
	vault  *fake
	local  *fake
	issuer *Issuer

	mu   sync.Mutex
	acts []string
}

// inWorld runs test in a bubble and closes the issuer at its end. config may be changed.
func inWorld(t *testing.T, change func(*Config), test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		red := redact.New([]byte("a key"))
		w := &world{t: t, red: red, log: &memory{red: red}, vault: newFake("vault"), local: newFake("local")}
		c := Config{
			Run: "r-1", Recorder: audit.NewRecorder(w.log, red), Redactor: red,
			Brokers: map[string]Broker{"vault": w.vault, "env": w.local, "file": w.local},
			Act: func(_ context.Context, action, reason string) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.acts = append(w.acts, action+" "+reason)
			},
			Bindings: []Binding{
				{Name: "git", From: "vault:git#token", Deliver: Deliver{Env: "GIT_TOKEN"}, Hosts: only("github.com")},
				{Name: "npm", From: "env:NPM", Deliver: Deliver{File: "npmrc"}},
				{Name: "api", From: "vault:api#key", Deliver: Deliver{Header: "x-api-key", Env: "API_KEY"}},
				{Name: "bare", From: "vault:bare#key", Deliver: Deliver{Header: "authorization"}},
				{Name: "tok", From: "vault:agents/x", Deliver: Deliver{Token: "VAULT_TOKEN"}},
				{Name: "seen", From: "file:seen"},
				{Name: "lost", From: "nowhere:x", Deliver: Deliver{Env: "LOST"}},
			},
		}
		if change != nil {
			change(&c)
		}
		w.issuer = NewIssuer(c)
		w.issuer.slept = func() time.Duration { return 0 }
		w.log.hook = w.issuer.Saw
		defer func() {
			w.vault.heal()
			w.local.heal()
			if err := w.issuer.Close(t.Context()); err != nil {
				t.Errorf("close: %v", err)
			}
			for _, f := range []*fake{w.vault, w.local} {
				if n := f.alive(); n > 0 {
					t.Errorf("%d grants of %s are alive after the issuer's end", n, f.name)
				}
			}
		}()
		test(w)
	})
}

func only(host string) func(string) bool { return func(h string) bool { return h == host } }

func (w *world) begin(step string, names ...string) *Lease {
	w.t.Helper()
	l, err := w.issuer.Begin(w.t.Context(), step, names, time.Hour)
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

func (w *world) deliver(step string, names ...string) *Lease {
	w.t.Helper()
	l := w.begin(step, names...)
	if _, err := l.Deliver(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return l
}

func (w *world) acted() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.acts)
}

// memory is an audit.Log in memory that can stall or fail.
type memory struct {
	red *redact.Redactor

	mu      sync.Mutex
	records []audit.Event
	raw     strings.Builder
	fail    error
	stalled chan struct{} // if not nil, Append waits for it
	hook    func(kind audit.Kind, step string, names []string, seq uint64)
}

func (m *memory) Append(ctx context.Context, s redact.Sealed) (uint64, error) {
	m.mu.Lock()
	stalled := m.stalled
	m.mu.Unlock()
	if stalled != nil {
		select {
		case <-stalled:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	ev, seq, err := m.keep(s)
	if err == nil && m.hook != nil { // within the caller's Record, as in a run
		m.hook(ev.Kind, ev.Step, s.Found(), seq)
	}
	return seq, err
}

func (m *memory) keep(s redact.Sealed) (ev audit.Event, seq uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return ev, 0, m.fail
	}
	if err := json.Unmarshal(s.Bytes(), &ev); err != nil {
		return ev, 0, err
	}
	m.records = append(m.records, ev)
	m.raw.Write(s.Bytes())
	return ev, uint64(len(m.records)), nil
}

func (m *memory) Sync(ctx context.Context, _ uint64) error { return ctx.Err() }

func (m *memory) stall() (thaw func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := make(chan struct{})
	m.stalled = c
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.stalled = nil
		close(c)
	}
}

func (m *memory) breaks(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

func (m *memory) events() []audit.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.records)
}

// ops returns the secret events as "step op name", and findings as "finding rule name".
func (m *memory) ops() []string {
	var out []string
	for _, ev := range m.events() {
		switch {
		case ev.Secret != nil:
			out = append(out, strings.TrimSpace(ev.Step+" "+string(ev.Secret.Op)+" "+ev.Secret.Name))
		case ev.Finding != nil:
			out = append(out, "finding "+string(ev.Finding.Rule)+" "+ev.Finding.Secret)
		}
	}
	return out
}

func (m *memory) findings() []audit.Finding {
	var out []audit.Finding
	for _, ev := range m.events() {
		if ev.Finding != nil {
			out = append(out, *ev.Finding)
		}
	}
	return out
}

// fake is a broker with faults. Its grants expire like a real broker's.
type fake struct {
	name string

	mu     sync.Mutex
	grants []*fakeGrant
	// Faults.
	mintErr, renewErr, revokeErr error
	mintTakes                    time.Duration // limited by the context
	renewTakes, revokeTakes      time.Duration
	ttl                          time.Duration // if not TTL
	values                       func(r Request) map[string][]byte
	expires                      func(time.Time) time.Time
}

func newFake(name string) *fake { return &fake{name: name} }

func (f *fake) heal() {
	f.set(func() {
		f.mintErr, f.renewErr, f.revokeErr, f.mintTakes, f.renewTakes, f.revokeTakes = nil, nil, nil, 0, 0, 0
	})
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) alive() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range f.grants {
		if !g.revoked && time.Now().Before(g.until) {
			n++
		}
	}
	return n
}

func (f *fake) last() *fakeGrant {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.grants[len(f.grants)-1]
}

func (f *fake) Name() string { return f.name }

// value is the fake's value for a name: constant, except for tokens.
func value(name string, n int) string {
	if name == "tok" {
		return fmt.Sprintf("hvs.token-%d-of-many-tokens", n)
	}
	return "the-value-of-" + name
}

func takes(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fake) Mint(ctx context.Context, r Request) (Grant, error) {
	f.mu.Lock()
	wait, err := f.mintTakes, f.mintErr
	f.mu.Unlock()
	if e := takes(ctx, wait); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	g := &fakeGrant{broker: f, id: len(f.grants), limit: time.Now().Add(r.Limit), values: map[string][]byte{}, misuse: make(chan string, 4)}
	for _, b := range r.Bindings {
		g.values[b.Name] = []byte(value(b.Name, g.id))
	}
	if f.values != nil {
		g.values = f.values(r)
	}
	g.extend()
	f.grants = append(f.grants, g)
	return g, nil
}

type fakeGrant struct {
	broker  *fake
	id      int
	limit   time.Time
	values  map[string][]byte
	misuse  chan string
	until   time.Time // guarded by the broker's lock, as is revoked
	revoked bool
	renewed int
}

func (g *fakeGrant) extend() {
	ttl := TTL
	if g.broker.ttl != 0 {
		ttl = g.broker.ttl
	}
	g.until = time.Now().Add(ttl)
	if g.broker.ttl == 0 && g.limit.Before(g.until) {
		g.until = g.limit
	}
}

func (g *fakeGrant) Values() map[string][]byte { return g.values }
func (g *fakeGrant) Accessor() string          { return fmt.Sprintf("%s-accessor-%d", g.broker.name, g.id) }
func (g *fakeGrant) Leases() int               { return 1 }
func (g *fakeGrant) Misuse() <-chan string     { return g.misuse }

func (g *fakeGrant) Expires() time.Time {
	g.broker.mu.Lock()
	defer g.broker.mu.Unlock()
	if g.broker.expires != nil {
		return g.broker.expires(g.until)
	}
	return g.until
}

func (g *fakeGrant) Renew(ctx context.Context) error {
	g.broker.mu.Lock()
	wait, err := g.broker.renewTakes, g.broker.renewErr
	g.broker.mu.Unlock()
	if e := takes(ctx, wait); e != nil {
		return e
	}
	if err != nil {
		return err
	}
	g.broker.mu.Lock()
	defer g.broker.mu.Unlock()
	if g.revoked || !time.Now().Before(g.until) {
		return fmt.Errorf("%w: 403", ErrLost)
	}
	g.renewed++
	g.extend()
	return nil
}

func (g *fakeGrant) Revoke(ctx context.Context) error {
	g.broker.mu.Lock()
	wait, err := g.broker.revokeTakes, g.broker.revokeErr
	g.broker.mu.Unlock()
	if e := takes(ctx, wait); e != nil {
		return e
	}
	if err != nil {
		return err
	}
	g.broker.mu.Lock()
	defer g.broker.mu.Unlock()
	if !g.revoked {
		g.revoked = true
		close(g.misuse)
	}
	return nil
}

// misused reports a misuse, unless the grant has ended.
func (g *fakeGrant) misused(what string) {
	g.broker.mu.Lock()
	defer g.broker.mu.Unlock()
	if !g.revoked {
		g.misuse <- what
	}
}

var errDown = errors.New("connection refused")

func equal(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// closed reports whether a channel is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
