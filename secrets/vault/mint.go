package vault

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/custody-project/custody/secrets"
)

const (
	// policyPrefix is what custody's own policy and its token role allow.
	policyPrefix = "custody-step-"
	// cleanTime is how long a mint that failed has to clean up.
	cleanTime = 10 * time.Second
)

// Mint implements secrets.Broker. All paths are read with a token of the step's own,
// each once, however many of its fields are bound.
func (b *Broker) Mint(ctx context.Context, r secrets.Request) (secrets.Grant, error) {
	p, err := planOf(r.Bindings)
	if err != nil {
		return nil, fmt.Errorf("vault: %w", err)
	}
	if len(r.Bindings) == 0 || r.Limit <= 0 {
		return nil, errors.New("vault: a grant needs bindings, and a time limit above zero")
	}
	g := newGrant(b, r)
	if err := g.mint(ctx, p); err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
		defer cancel()
		if e := g.revoke(clean); e != nil {
			return nil, fmt.Errorf("vault: %w; what was made for it ends within a minute: %w", err, e)
		}
		return nil, fmt.Errorf("vault: %w", err)
	}
	return g, nil
}

func (g *grant) mint(ctx context.Context, p plan) error {
	if len(p.reads) > 0 {
		t, err := g.make(ctx, p.reads)
		if err != nil {
			return err
		}
		if err := g.readAll(ctx, t, p); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.tokens)) {
		t, err := g.make(ctx, []string{p.tokens[name]})
		if err != nil {
			return fmt.Errorf("secret %s: %w", name, err)
		}
		g.watch(t, p.tokens[name])
		g.values[name] = []byte(t.secret)
	}
	g.expires = g.earliest()
	return nil
}

// make makes a token that can read paths and nothing else. The note names the policy
// before it exists, and the token as soon as its accessor is known; between these,
// the token lives for a minute at most.
func (g *grant) make(ctx context.Context, paths []string) (token, error) {
	name := policyPrefix + strings.ToLower(rand.Text())
	g.note.Policies = append(g.note.Policies, name)
	if err := g.note.save(); err != nil {
		return token{}, err
	}
	_, err := g.broker.session.ask(ctx, http.MethodPut, "sys/policies/acl/"+name, map[string]any{"policy": policy(paths)})
	if err != nil {
		return token{}, fmt.Errorf("write a policy: %w", err)
	}
	since := time.Now()
	answer, err := g.create(ctx, name)
	if err != nil {
		return token{}, fmt.Errorf("make a token: %w", err)
	}
	t, err := tokenOf(answer, since)
	if err != nil {
		return token{}, err
	}
	g.note.Accessors = append(g.note.Accessors, t.accessor)
	g.tokens = append(g.tokens, t)
	if err := g.note.save(); err != nil {
		return token{}, err
	}
	if err := checkStep(answer.Auth, name); err != nil {
		return token{}, fmt.Errorf("the token role for steps gives %w (docs/vault.md has its settings)", err)
	}
	return t, nil
}

// create has the run's token make a step's. When Vault does not accept the run's token
// any more, what hung on it is dead, and a new one is made.
func (g *grant) create(ctx context.Context, policy string) (*api.Secret, error) {
	left := time.Until(g.until)
	if left <= 0 {
		return nil, errors.New("the step's time limit is over")
	}
	body := map[string]any{
		"policies": []string{policy}, "no_default_policy": true, "type": "service", "renewable": true,
		"ttl": inSeconds(min(left, secrets.TTL)), "explicit_max_ttl": inSeconds(left),
		"meta": map[string]string{"run": g.run, "step": g.step}, "display_name": "custody-step",
	}
	run, err := g.broker.parent(ctx, "")
	if err != nil {
		return nil, err
	}
	answer, err := g.broker.client.call(ctx, run.secret, http.MethodPost, run.creates, body)
	if !refused(err, http.StatusForbidden) {
		return answer, err
	}
	if run, err = g.broker.parent(ctx, run.secret); err != nil {
		return nil, err
	}
	return g.broker.client.call(ctx, run.secret, http.MethodPost, run.creates, body)
}

// inSeconds is a duration in Vault's words, rounded up.
func inSeconds(d time.Duration) string {
	return fmt.Sprintf("%ds", int((d+time.Second-1)/time.Second))
}

// checkStep refuses a token that can do more, or lives longer, than was asked for.
func checkStep(a *api.SecretAuth, policy string) error {
	switch {
	case a.LeaseDuration <= 0 || time.Duration(a.LeaseDuration)*time.Second > secrets.TTL:
		return fmt.Errorf("tokens that live for %d s, not %s", a.LeaseDuration, ttl)
	case !a.Renewable:
		return errors.New("tokens that cannot be renewed: set renewable=true")
	case a.Orphan:
		return errors.New("tokens that do not end with the run's: set orphan=false")
	case !slices.Equal(a.Policies, []string{policy}):
		return errors.New("tokens with policies that were not asked for: set token_no_default_policy=true")
	}
	return nil
}

// readAll reads what is bound with the step's own token.
func (g *grant) readAll(ctx context.Context, t token, p plan) error {
	w := g.watch(t, "")
	for _, path := range p.reads {
		answer, err := g.broker.client.call(ctx, t.secret, http.MethodGet, path, nil)
		if refused(err, http.StatusNotFound) {
			err = fmt.Errorf("there is nothing at %s (of a KV v2 engine, paths begin MOUNT/data/)", path)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if answer != nil {
			w.made(answer.RequestID)
			g.addLease(answer)
		}
		if err := g.pick(answer, path, p); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
	}
	w.settle()
	return nil
}

// pick keeps the values of the fields that are bound.
func (g *grant) pick(answer *api.Secret, path string, p plan) error {
	data, err := dataOf(answer)
	if err != nil {
		return err
	}
	for name, src := range p.fields {
		if src.path != path {
			continue
		}
		if g.values[name], err = fieldOf(data, src.field); err != nil {
			return fmt.Errorf("secret %s: %w", name, err)
		}
	}
	return nil
}

// addLease keeps the lease that came with a secret of a dynamic engine.
func (g *grant) addLease(answer *api.Secret) {
	if answer.LeaseID == "" {
		return
	}
	g.leases = append(g.leases, lease{
		id: answer.LeaseID, renewable: answer.Renewable,
		ends: time.Now().Add(time.Duration(answer.LeaseDuration) * time.Second),
	})
}
