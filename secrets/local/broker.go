package local

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/custody-project/custody/secrets"
)

// Broker serves env:, file: and cmd: sources. It grants copies of values whose lifetime their owner controls: a
// revocation wipes the copies and ends the grant, but cannot invalidate the value elsewhere. It has no state.
type Broker struct {
	// Caller returns the user that runs the commands of cmd: sources; nil: the user of this process.
	Caller func() (*Caller, error)
}

// Name implements secrets.Broker.
func (Broker) Name() string { return "local" }

// Mint reads each value again from its source.
func (b Broker) Mint(ctx context.Context, r secrets.Request) (secrets.Grant, error) {
	now := time.Now()
	g := &grant{accessor: rand.Text(), limit: now.Add(r.Limit), values: map[string][]byte{}}
	for _, binding := range r.Bindings {
		value, err := b.source(ctx, binding, r.Dir)
		if err != nil {
			g.wipe()
			return nil, fmt.Errorf("secret %s: %w", binding.Name, err)
		}
		g.values[binding.Name] = value
	}
	// Reading the sources may have taken long: the TTL begins after the last.
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expires = earlier(time.Now().Add(secrets.TTL), g.limit)
	g.timer = time.AfterFunc(time.Until(g.expires), g.ranOut)
	return g, nil
}

// ReadValues implements secrets.Reader. It reads variables and files, and runs no commands.
func (Broker) ReadValues(r secrets.Request) (map[string][]byte, map[string]error) {
	values, errs := ReadAll(r.Bindings, r.Dir)
	maps.DeleteFunc(errs, func(_ string, err error) bool { return errors.Is(err, fs.ErrNotExist) })
	return values, errs
}

// ReadAll returns the values of the bindings whose sources are variables and files, with relative files below dir, and
// the errors of those that cannot be read, both by the secret's name. It runs no commands. The caller may change the
// bytes.
func ReadAll(bindings []secrets.Binding, dir string) (values map[string][]byte, errs map[string]error) {
	values, errs = map[string][]byte{}, map[string]error{}
	for _, b := range bindings {
		scheme, rest, _ := strings.Cut(b.From, ":")
		if scheme != "env" && scheme != "file" || rest == "" {
			continue
		}
		value, err := Resolve(context.Background(), b.From, dir, nil)
		if err != nil {
			errs[b.Name] = err
		} else {
			values[b.Name] = value
		}
	}
	return values, errs
}

func (b Broker) source(ctx context.Context, of secrets.Binding, dir string) ([]byte, error) {
	if of.Deliver.Token != "" {
		return nil, errors.New("only Vault can deliver tokens: remove deliver: {token} or use a vault: source")
	}
	var as *Caller
	if strings.HasPrefix(of.From, "cmd:") && b.Caller != nil {
		var err error
		if as, err = b.Caller(); err != nil {
			return nil, err
		}
	}
	return Resolve(ctx, of.From, dir, as)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// grant is alive until it expires or is revoked:
//
//	Mint ----> alive ---- Revoke, or no Renew for TTL, or the limit ----> dead, values wiped
//	           |   ^
//	           +---+ Renew
type grant struct {
	accessor string
	limit    time.Time

	mu      sync.Mutex // guards the fields below
	values  map[string][]byte
	expires time.Time // with a monotonic clock reading, so that changes of the clock do not move it
	timer   *time.Timer
	dead    error
}

// Values returns copies; none after the end of the grant.
func (g *grant) Values() map[string][]byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.check() != nil {
		return nil
	}
	out := make(map[string][]byte, len(g.values))
	for name, v := range g.values {
		out[name] = bytes.Clone(v)
	}
	return out
}

// Accessor returns a random name, which cannot be used anywhere.
func (g *grant) Accessor() string { return g.accessor }

// Leases implements secrets.Grant.
func (g *grant) Leases() int { return 0 }

// Expires implements secrets.Grant.
func (g *grant) Expires() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.expires
}

// Renew implements secrets.Grant. A grant that has ended cannot be renewed.
func (g *grant) Renew(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.check(); err != nil {
		return err
	}
	g.expires = earlier(time.Now().Add(secrets.TTL), g.limit)
	g.timer.Reset(time.Until(g.expires))
	return nil
}

// Revoke implements secrets.Grant.
func (g *grant) Revoke(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end("it was revoked")
	return nil
}

// Misuse implements secrets.Grant. Other uses of the value cannot be detected.
func (g *grant) Misuse() <-chan string { return nil }

// ranOut is called by the timer, possibly after a Renew that did not stop it in time.
func (g *grant) ranOut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.check()
}

// check ends the grant if it has expired; the caller holds g.mu.
func (g *grant) check() error {
	if g.dead == nil && !time.Now().Before(g.expires) {
		g.end("it has expired")
	}
	return g.dead
}

func (g *grant) end(reason string) {
	if g.dead == nil {
		g.dead = fmt.Errorf("%w: %s", secrets.ErrLost, reason)
		g.timer.Stop()
		g.wipe()
	}
}

func (g *grant) wipe() {
	for _, v := range g.values {
		clear(v)
	}
	clear(g.values)
}
