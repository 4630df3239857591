package vault

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/custody-project/custody/secrets"
)

// lease is a Vault lease on a secret that an engine made for the step. It ends with the token that read it, or earlier
// if it is not renewed.
type lease struct {
	id        string
	renewable bool
	ends      time.Time
}

// grant implements secrets.Grant: the tokens of one step, and the leases of secrets that they have read.
type grant struct {
	broker    *Broker
	run, step string
	until     time.Time // the step's limit
	values    map[string][]byte
	misuse    chan string // nil without an audit log

	// turn is a lock for Renew and Revoke. It guards the fields below after the mint.
	turn      chan struct{}
	note      *note
	tokens    []token // the first is the grant's; the others are delivered as tokens
	leases    []lease
	parent    token // of the tokens; none in a Vault without token roles
	unwatched bool
	revoked   bool

	// life ends with the first Revoke, which then need not wait for a Renew.
	life context.Context
	end  context.CancelFunc

	mu      sync.Mutex // guards expires
	expires time.Time
}

// maxMisuse bounds the waiting reports; further ones have no new information.
const maxMisuse = 16

func newGrant(b *Broker, r secrets.Request) *grant {
	g := &grant{
		broker: b, run: r.Run, step: r.Step, until: time.Now().Add(r.Limit), note: b.newNote(r.Run),
		values: map[string][]byte{}, turn: make(chan struct{}, 1),
	}
	g.life, g.end = context.WithCancel(context.Background())
	if b.log != nil {
		g.misuse = make(chan string, maxMisuse)
		b.log.use(1)
	}
	return g
}

// Values implements secrets.Grant.
func (g *grant) Values() map[string][]byte { return g.values }

// Accessor implements secrets.Grant.
func (g *grant) Accessor() string { return g.tokens[0].accessor }

// Leases implements secrets.Grant.
func (g *grant) Leases() int { return len(g.leases) }

// Misuse implements secrets.Grant.
func (g *grant) Misuse() <-chan string { return g.misuse }

// Expires implements secrets.Grant.
func (g *grant) Expires() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.expires
}

// all returns the step's tokens and their parent. The caller holds turn.
func (g *grant) all() []token { return slices.Concat(g.tokens, []token{g.parent}) }

// earliest returns when the first token or lease expires. The caller holds turn.
func (g *grant) earliest() time.Time {
	first := g.until
	for _, t := range g.all() {
		if end, does := t.ends(); does && end.Before(first) {
			first = end
		}
	}
	for _, l := range g.leases {
		if l.ends.Before(first) {
			first = l.ends
		}
	}
	return first
}

// Renew implements secrets.Grant.
func (g *grant) Renew(ctx context.Context) error {
	if err := g.renew(ctx); err != nil {
		return fmt.Errorf("vault: renew the credentials of step %q: %w", g.step, err)
	}
	return nil
}

func (g *grant) renew(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	defer context.AfterFunc(g.life, cancel)()
	if err := g.take(ctx); err != nil {
		return err
	}
	defer g.release()
	if g.revoked {
		return errors.New("they were revoked")
	}
	left := time.Until(g.until).Truncate(time.Second)
	if left <= 0 {
		return errors.New("the step's time limit is reached")
	}
	if g.parent != (token{}) {
		if err := g.renewToken(ctx, &g.parent, min(left, secrets.TTL)); err != nil {
			return err
		}
	}
	for i := range g.tokens {
		if err := g.renewToken(ctx, &g.tokens[i], min(left, secrets.TTL)); err != nil {
			return err
		}
	}
	for i := range g.leases {
		if err := g.renewLease(ctx, &g.leases[i], min(left, secrets.TTL)); err != nil {
			return err
		}
	}
	g.setExpires(g.earliest())
	return nil
}

func (g *grant) renewToken(ctx context.Context, t *token, d time.Duration) error {
	now := time.Now()
	granted, err := g.broker.session.renew(ctx, t.accessor, d)
	if unknownAccessor(err) {
		return errors.New("Vault no longer has the step's token: it has expired, or was revoked there")
	}
	if err != nil {
		return err
	}
	t.since, t.ttl = now, min(granted, d)
	return nil
}

// renewLease renews a lease that would end before its token.
func (g *grant) renewLease(ctx context.Context, l *lease, d time.Duration) error {
	now := time.Now()
	if !l.renewable || l.ends.After(now.Add(d)) {
		return nil
	}
	body := map[string]any{"lease_id": l.id, "increment": int(d / time.Second)}
	answer, err := g.broker.session.ask(ctx, http.MethodPut, "sys/leases/renew", body)
	if err != nil {
		return fmt.Errorf("renew a lease: %w", err)
	}
	if answer == nil || answer.LeaseDuration <= 0 {
		return errors.New("Vault did not confirm the renewal of a lease")
	}
	l.ends = now.Add(time.Duration(answer.LeaseDuration) * time.Second)
	return nil
}

// Revoke implements secrets.Grant. Without Vault's confirmation it fails, and can be called again; the note stays for
// Sweep.
func (g *grant) Revoke(ctx context.Context) error {
	if err := g.revoke(ctx); err != nil {
		return fmt.Errorf("vault: revoke the credentials of step %q: %w", g.step, err)
	}
	return nil
}

func (g *grant) revoke(ctx context.Context) error {
	g.end() // also of a current renewal
	if err := g.take(ctx); err != nil {
		return err
	}
	defer g.release()
	g.unwatch()
	if g.revoked {
		return nil
	}
	if err := g.broker.clear(ctx, g.note.Note); err != nil {
		return err
	}
	for _, l := range g.leases {
		if err := g.revokeLease(ctx, l); err != nil {
			return err
		}
	}
	if err := g.note.remove(); err != nil {
		return err
	}
	g.revoked = true
	g.setExpires(time.Now())
	return nil
}

// revokeLease revokes a lease synchronously: after the token's revocation Vault would do so later.
func (g *grant) revokeLease(ctx context.Context, l lease) error {
	_, err := g.broker.session.ask(ctx, http.MethodPut, "sys/leases/revoke", map[string]any{"lease_id": l.id, "sync": true})
	if err != nil && !refused(err, http.StatusBadRequest, http.StatusNotFound) {
		return fmt.Errorf("revoke a lease: %w", err)
	}
	return nil
}

func (g *grant) setExpires(t time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expires = t
}

func (g *grant) take(ctx context.Context) error {
	select {
	case g.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *grant) release() { <-g.turn }
