package vault

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/custody-project/custody/secrets"
)

const (
	// keepEvery is how often is looked whether a token has to be renewed.
	keepEvery = 2 * time.Second
	// ttl is the life of the tokens that custody makes, in Vault's words.
	ttl = "60s"
)

// session holds custody's own token and the run's token, and keeps them alive. It is
// safe for concurrent use.
//
//	       login            parent
//	none ---------> own ------------> own + run
//	                ^ |                ^  |  every 20 s: renewed
//	                +-+ half its life  +--+  Vault knows it no more: made anew
//	                    over: renewed,       for the next step (what hung
//	                    or logged in anew    on it is dead)
type session struct {
	client *client
	cfg    Config

	// turn is taken by whoever makes a token, so that one is made at a time.
	turn chan struct{}

	mu  sync.Mutex // guards the tokens
	own token
	run token
}

func newSession(c *client, cfg Config) *session {
	return &session{client: c, cfg: cfg, turn: make(chan struct{}, 1)}
}

func (s *session) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the login at Vault was not waited for: %w", ctx.Err())
	}
}

func (s *session) release() { <-s.turn }

func (s *session) tokens() (own, run token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own, s.run
}

func (s *session) setOwn(t token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own = t
}

func (s *session) setRun(t token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run = t
}

// ask makes a call with custody's own token. If Vault does not accept it, that may
// be because the token has ended: there is a login then, and one more try.
func (s *session) ask(ctx context.Context, method, path string, body map[string]any) (*api.Secret, error) {
	own, _ := s.tokens()
	if own.secret == "" || own.dead(time.Now()) {
		var err error
		if own, err = s.relogin(ctx, own); err != nil {
			return nil, err
		}
	}
	answer, err := s.client.call(ctx, own.secret, method, path, body)
	if !refused(err, http.StatusForbidden) || unknownAccessor(err) || s.valid(ctx, own) {
		return answer, err
	}
	if own, err = s.relogin(ctx, own); err != nil {
		return nil, err
	}
	return s.client.call(ctx, own.secret, method, path, body)
}

// valid returns whether Vault still knows a token.
func (s *session) valid(ctx context.Context, t token) bool {
	_, err := s.client.call(ctx, t.secret, http.MethodGet, "auth/token/lookup-self", nil)
	return !refused(err, http.StatusForbidden)
}

// relogin replaces a token of custody's own that is of no more use, unless somebody has already.
func (s *session) relogin(ctx context.Context, old token) (token, error) {
	if err := s.take(ctx); err != nil {
		return token{}, err
	}
	defer s.release()
	if own, _ := s.tokens(); own.secret != old.secret {
		return own, nil
	}
	own, err := s.client.login(ctx, s.cfg)
	if err != nil {
		return token{}, err
	}
	s.setOwn(own)
	return own, nil
}

// parent returns the run's token, other than the one of which is known that Vault does not accept it.
func (s *session) parent(ctx context.Context, not string) (token, error) {
	if _, run := s.tokens(); usable(run, not) {
		return run, nil
	}
	if _, err := s.ask(ctx, http.MethodGet, "auth/token/lookup-self", nil); err != nil { // logs in if need be
		return token{}, err
	}
	if err := s.take(ctx); err != nil {
		return token{}, err
	}
	defer s.release()
	own, run := s.tokens()
	if usable(run, not) {
		return run, nil
	}
	run, err := s.makeRun(ctx, own)
	if err != nil {
		return token{}, fmt.Errorf("make the run's token at Vault: %w", err)
	}
	s.setRun(run)
	return run, nil
}

func usable(t token, not string) bool {
	return t.secret != "" && t.secret != not && !t.dead(time.Now())
}

// makeRun makes the run's token: through its token role, or, where there is none and
// none was asked for, with the rights of custody's own token, which must suffice.
func (s *session) makeRun(ctx context.Context, own token) (token, error) {
	body := map[string]any{"ttl": ttl, "type": "service", "renewable": true, "no_default_policy": true, "display_name": "custody-run"}
	role := or(s.cfg.TokenRole, defaultTokenRole)
	since := time.Now()
	answer, err := s.client.call(ctx, own.secret, http.MethodPost, "auth/token/create/"+role+"-run", body)
	if s.cfg.TokenRole == "" && refused(err, http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound) {
		body["no_parent"], body["period"] = true, ttl
		if plain, e := s.client.call(ctx, own.secret, http.MethodPost, "auth/token/create", body); e == nil {
			answer, role, err = plain, "", nil
		}
	}
	if err != nil {
		return token{}, err
	}
	t, err := tokenOf(answer, since)
	if err != nil {
		return token{}, err
	}
	t.creates = strings.TrimSuffix("auth/token/create/"+role, "/")
	if err := checkRun(answer.Auth); err != nil {
		err = fmt.Errorf("the token role %s-run gives %w (docs/vault.md has its settings)", role, err)
		return token{}, errors.Join(err, s.kill(context.WithoutCancel(ctx), t.accessor))
	}
	return t, nil
}

func checkRun(a *api.SecretAuth) error {
	switch {
	case time.Duration(a.LeaseDuration)*time.Second > secrets.TTL || a.LeaseDuration <= 0:
		return fmt.Errorf("tokens that live for %d s, not %s", a.LeaseDuration, ttl)
	case !a.Renewable:
		return errors.New("tokens that cannot be renewed: set renewable=true")
	case !a.Orphan:
		return errors.New("tokens that end with custody's login: set orphan=true")
	}
	return nil
}

// kill revokes a token and what hangs on it, and returns when Vault says that it knows it no more.
func (s *session) kill(ctx context.Context, accessor string) error {
	body := map[string]any{"accessor": accessor}
	_, err := s.ask(ctx, http.MethodPost, "auth/token/revoke-accessor", body)
	if err != nil && !unknownAccessor(err) {
		return fmt.Errorf("revoke a token: %w", err)
	}
	_, err = s.ask(ctx, http.MethodPost, "auth/token/lookup-accessor", body)
	switch {
	case unknownAccessor(err):
		return nil
	case err != nil:
		return fmt.Errorf("ask whether a token is revoked: %w", err)
	}
	return errors.New("Vault still knows a token that it said it had revoked")
}

// renew makes a token live for d more, and returns how long Vault says that it does.
func (s *session) renew(ctx context.Context, accessor string, d time.Duration) (time.Duration, error) {
	body := map[string]any{"accessor": accessor, "increment": fmt.Sprintf("%ds", int(d/time.Second))}
	answer, err := s.ask(ctx, http.MethodPost, "auth/token/renew-accessor", body)
	switch {
	case err != nil:
		return 0, err
	case answer == nil || answer.Auth == nil || answer.Auth.LeaseDuration <= 0:
		return 0, errors.New("Vault does not confirm that a token was renewed")
	}
	return time.Duration(answer.Auth.LeaseDuration) * time.Second, nil
}

// keep renews the tokens until ctx ends.
func (s *session) keep(ctx context.Context) {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.keepOwn(ctx)
		s.keepRun(ctx)
	}
}

// keepOwn renews custody's own token, or logs in again. What fails is tried again at
// the next tick; whoever needs the token meanwhile gets the error.
func (s *session) keepOwn(ctx context.Context) {
	own, _ := s.tokens()
	now := time.Now()
	if own.secret == "" || !own.due(now) {
		return
	}
	if own.renewable {
		answer, err := s.client.call(ctx, own.secret, http.MethodPost, "auth/token/renew-self", nil)
		if err == nil && answer != nil && answer.Auth != nil {
			granted := time.Duration(answer.Auth.LeaseDuration) * time.Second
			if left := own.ttl - now.Sub(own.since); granted > left+time.Second {
				own.since, own.ttl = now, granted
				s.setOwn(own)
				return
			}
		}
	}
	if s.cfg.Login != LoginToken {
		_, _ = s.relogin(ctx, own)
	}
}

// keepRun renews the run's token a third of its life after it was last.
func (s *session) keepRun(ctx context.Context) {
	_, run := s.tokens()
	now := time.Now()
	if run.secret == "" || now.Sub(run.since) < secrets.TTL/3 {
		return
	}
	granted, err := s.renew(ctx, run.accessor, secrets.TTL)
	switch {
	case err == nil:
		run.since, run.ttl = now, granted
		s.setRun(run)
	case unknownAccessor(err) || run.dead(time.Now()):
		s.setRun(token{}) // made anew for the next step
	}
}

// close revokes the run's token, with what is left on it, and custody's own if it came from a login.
func (s *session) close(ctx context.Context) error {
	own, run := s.tokens()
	var err error
	if run.secret != "" && !run.dead(time.Now()) {
		err = s.kill(ctx, run.accessor)
	}
	if own.secret != "" && s.cfg.Login != LoginToken {
		own, _ = s.tokens()
		_, e := s.client.call(ctx, own.secret, http.MethodPost, "auth/token/revoke-self", nil)
		if e != nil && !refused(e, http.StatusForbidden) {
			err = errors.Join(err, fmt.Errorf("log out of Vault: %w", e))
		}
	}
	s.setOwn(token{})
	s.setRun(token{})
	return err
}
