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
	// policyPrefix is the prefix of policies that custody's own policy and its token role allow.
	policyPrefix = "custody-step-"
	// cleanTime bounds the cleanup after a failed mint.
	cleanTime = 10 * time.Second
)

// Mint implements secrets.Broker. It reads each path once with the step's token, however many of its fields the step
// has.
func (b *Broker) Mint(ctx context.Context, r secrets.Request) (secrets.Grant, error) {
	p, err := planOf(r.Bindings)
	if err != nil {
		return nil, fmt.Errorf("vault: %w", err)
	}
	if len(r.Bindings) == 0 || r.Limit <= 0 {
		return nil, errors.New("vault: a grant needs bindings, and a positive time limit")
	}
	g := newGrant(b, r)
	m := mint{broker: b, grant: g, plan: p}
	if err := m.run(ctx); err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
		defer cancel()
		if e := g.revoke(clean); e != nil {
			return nil, fmt.Errorf("vault: %w; the tokens made for it expire within a minute: %w", err, e)
		}
		return nil, fmt.Errorf("vault: %w", err)
	}
	return g, nil
}

// order is a token to be made.
type order struct {
	secret string // the secret whose value it is; empty: the broker's token for reading
	paths  []string
	policy string
}

func (p plan) orders() []order {
	var list []order
	if len(p.reads) > 0 {
		list = append(list, order{paths: p.reads})
	}
	for _, name := range slices.Sorted(maps.Keys(p.tokens)) {
		list = append(list, order{secret: name, paths: []string{p.tokens[name]}})
	}
	for i := range list {
		list[i].policy = policyPrefix + strings.ToLower(rand.Text())
	}
	return list
}

// mint makes the tokens of a grant, and reads the secrets with them. Nothing else uses the grant meanwhile.
type mint struct {
	broker      *Broker
	grant       *grant
	plan        plan
	noRole      error  // why there is no parent: Vault's response
	parentWatch *watch // nil without an audit log
}

func (m *mint) run(ctx context.Context) error {
	g := m.grant
	orders := m.plan.orders()
	if err := m.makePolicies(ctx, orders); err != nil {
		return err
	}
	if err := m.makeParent(ctx, orders); err != nil {
		return fmt.Errorf("make the parent of a step's tokens: %w", err)
	}
	for _, o := range orders {
		t, err := m.makeToken(ctx, o)
		if err != nil {
			return fmt.Errorf("make a step's token: %w", err)
		}
		if o.secret != "" {
			g.watch(t, o.paths[0])
			g.values[o.secret] = []byte(t.secret)
		} else if err := m.readAll(ctx, t); err != nil {
			return err
		}
	}
	m.parentWatch.settle()
	g.expires = g.earliest()
	return nil
}

// makePolicies writes a policy for each token. The note names them before they exist.
func (m *mint) makePolicies(ctx context.Context, orders []order) error {
	for _, o := range orders {
		m.grant.note.Policies = append(m.grant.note.Policies, o.policy)
	}
	if err := m.grant.note.save(); err != nil {
		return err
	}
	for _, o := range orders {
		_, err := m.broker.session.ask(ctx, http.MethodPut, "sys/policies/acl/"+o.policy, map[string]any{"policy": policy(o.paths)})
		if err != nil {
			return fmt.Errorf("write a policy: %w", err)
		}
	}
	return nil
}

// makeParent makes the parent of the step's tokens. It has all their capabilities and can make child tokens. Vault
// restricts children to a part of these capabilities and, unlike tokens made with a role, to the requested explicit
// maximum TTL. Without a role, if none was configured, custody's login must be privileged enough to make tokens without
// a parent.
func (m *mint) makeParent(ctx context.Context, orders []order) error {
	role := or(m.broker.cfg.TokenRole, defaultTokenRole)
	policies := []string{role + "-parent"}
	for _, o := range orders {
		policies = append(policies, o.policy)
	}
	since := time.Now()
	answer, err := m.broker.session.ask(ctx, http.MethodPost, "auth/token/create/"+role, m.tokenBody(policies))
	if err != nil {
		if m.broker.cfg.TokenRole == "" && refused(err, http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound) {
			m.noRole = err
			return nil
		}
		return err
	}
	if m.grant.parent, err = m.register(answer, since); err != nil {
		return err
	}
	m.parentWatch = m.grant.watch(m.grant.parent, "")
	if err := checkToken(answer.Auth, true, policies); err != nil {
		return fmt.Errorf("the token role %s makes %w (docs/vault.md has its settings)", role, err)
	}
	return nil
}

// makeToken makes one of the step's tokens.
func (m *mint) makeToken(ctx context.Context, o order) (token, error) {
	left := time.Until(m.grant.until)
	if left <= 0 {
		return token{}, errors.New("the step's time limit is reached")
	}
	body := m.tokenBody([]string{o.policy})
	body["ttl"], body["explicit_max_ttl"] = inSeconds(min(left, secrets.TTL)), inSeconds(left)
	since := time.Now()
	var answer *api.Secret
	var err error
	if m.noRole == nil {
		answer, err = m.broker.client.call(ctx, m.grant.parent.secret, http.MethodPost, "auth/token/create", body)
	} else {
		body["no_parent"] = true
		if answer, err = m.broker.session.ask(ctx, http.MethodPost, "auth/token/create", body); err != nil {
			err = m.noRole
		}
	}
	if err != nil {
		return token{}, err
	}
	t, err := m.register(answer, since)
	if err != nil {
		return token{}, err
	}
	m.grant.tokens = append(m.grant.tokens, t)
	m.parentWatch.made(answer.RequestID)
	return t, checkToken(answer.Auth, m.noRole != nil, []string{o.policy})
}

func (m *mint) tokenBody(policies []string) map[string]any {
	return map[string]any{
		"policies": policies, "no_default_policy": true, "type": "service", "renewable": true, "ttl": inSeconds(secrets.TTL),
		"meta": map[string]string{"run": m.grant.run, "step": m.grant.step}, "display_name": "custody-step",
	}
}

// register adds the token in a response to the grant and to the note. A token whose accessor is not in the note expires
// within a minute.
func (m *mint) register(answer *api.Secret, since time.Time) (token, error) {
	t, err := tokenOf(answer, since)
	if err != nil {
		return token{}, err
	}
	m.grant.note.Accessors = append(m.grant.note.Accessors, t.accessor)
	return t, m.grant.note.save()
}

// inSeconds returns a duration in Vault's format, rounded up.
func inSeconds(d time.Duration) string {
	return fmt.Sprintf("%ds", int((d+time.Second-1)/time.Second))
}

// checkToken returns an error for a token with more capabilities or a longer lifetime than requested.
func checkToken(a *api.SecretAuth, orphan bool, policies []string) error {
	switch {
	case a.LeaseDuration <= 0 || time.Duration(a.LeaseDuration)*time.Second > secrets.TTL:
		return fmt.Errorf("tokens that live for %d s, not %s", a.LeaseDuration, secrets.TTL)
	case !a.Renewable:
		return errors.New("tokens that cannot be renewed: set renewable=true")
	case orphan && !a.Orphan:
		return errors.New("tokens that end with custody's login: set orphan=true")
	case !orphan && a.Orphan:
		return errors.New("tokens without a parent")
	case !slices.Equal(slices.Sorted(slices.Values(a.Policies)), slices.Sorted(slices.Values(policies))):
		return errors.New("tokens with additional policies: set token_no_default_policy=true")
	}
	return nil
}

// readAll reads the secrets with the step's token.
func (m *mint) readAll(ctx context.Context, t token) error {
	w := m.grant.watch(t, "")
	for _, path := range m.plan.reads {
		answer, err := m.broker.client.call(ctx, t.secret, http.MethodGet, path, nil)
		if refused(err, http.StatusNotFound) {
			err = fmt.Errorf("there is nothing at %s (of a KV v2 engine, paths begin MOUNT/data/)", path)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if answer != nil {
			w.made(answer.RequestID)
			m.addLease(answer)
		}
		if err := m.pick(answer, path); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
	}
	w.settle()
	return nil
}

// pick stores the values of the needed fields.
func (m *mint) pick(answer *api.Secret, path string) error {
	data, err := dataOf(answer)
	if err != nil {
		return err
	}
	for name, src := range m.plan.fields {
		if src.path != path {
			continue
		}
		if m.grant.values[name], err = fieldOf(data, src.field); err != nil {
			return fmt.Errorf("secret %s: %w", name, err)
		}
	}
	return nil
}

// addLease stores the lease of a dynamic engine's secret.
func (m *mint) addLease(answer *api.Secret) {
	if answer.LeaseID == "" {
		return
	}
	m.grant.leases = append(m.grant.leases, lease{
		id: answer.LeaseID, renewable: answer.Renewable,
		ends: time.Now().Add(time.Duration(answer.LeaseDuration) * time.Second),
	})
}
