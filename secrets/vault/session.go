package vault

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/vault/api"
)

// keepEvery is the interval at which the session checks whether its token must be renewed.
const keepEvery = 500 * time.Millisecond

// session has custody's login token and renews it. It is safe for concurrent use.
//
//	     login           half its life is over
//	none -----> own --------------------------> renewed, or, if that gains
//	             ^                              nothing, logged in again
//	             |     Vault does not accept it     |
//	             +----------- login <---------------+
type session struct {
	client *client
	cfg    Config

	// turn is a lock for the goroutine that logs in.
	turn chan struct{}

	mu  sync.Mutex // guards own
	own token
}

func newSession(c *client, cfg Config) *session {
	return &session{client: c, cfg: cfg, turn: make(chan struct{}, 1)}
}

func (s *session) token() token {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own
}

func (s *session) set(t token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own = t
}

// ask makes a call with custody's token. If Vault does not accept it, the token may have ended: ask then logs in and
// retries once.
func (s *session) ask(ctx context.Context, method, path string, body map[string]any) (*api.Secret, error) {
	own := s.token()
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

// valid reports whether Vault still accepts a token.
func (s *session) valid(ctx context.Context, t token) bool {
	_, err := s.client.call(ctx, t.secret, http.MethodGet, "auth/token/lookup-self", nil)
	return !refused(err, http.StatusForbidden)
}

// relogin replaces custody's token if it is unusable and no other goroutine has replaced it.
func (s *session) relogin(ctx context.Context, old token) (token, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return token{}, fmt.Errorf("the login at Vault was cancelled: %w", ctx.Err())
	}
	defer func() { <-s.turn }()
	if own := s.token(); own.secret != old.secret {
		return own, nil
	}
	own, err := s.client.login(ctx, s.cfg)
	if err != nil {
		return token{}, err
	}
	s.set(own)
	return own, nil
}

// kill revokes a token with its children and leases, and returns when Vault no longer has it.
func (s *session) kill(ctx context.Context, accessor string) error {
	body := map[string]any{"accessor": accessor}
	_, err := s.ask(ctx, http.MethodPost, "auth/token/revoke-accessor", body)
	switch {
	case unknownAccessor(err):
		return nil
	case err != nil:
		return fmt.Errorf("revoke a token: %w", err)
	}
	_, err = s.ask(ctx, http.MethodPost, "auth/token/lookup-accessor", body)
	switch {
	case unknownAccessor(err):
		return nil
	case err != nil:
		return fmt.Errorf("check that a token is revoked: %w", err)
	}
	return errors.New("Vault still has a token whose revocation it has confirmed")
}

// renew extends a token to d from now, and returns the lifetime in Vault's response.
func (s *session) renew(ctx context.Context, accessor string, d time.Duration) (time.Duration, error) {
	body := map[string]any{"accessor": accessor, "increment": fmt.Sprintf("%ds", int(d/time.Second))}
	answer, err := s.ask(ctx, http.MethodPost, "auth/token/renew-accessor", body)
	switch {
	case err != nil:
		return 0, err
	case answer == nil || answer.Auth == nil || answer.Auth.LeaseDuration <= 0:
		return 0, errors.New("Vault did not confirm the renewal of a token")
	}
	return time.Duration(answer.Auth.LeaseDuration) * time.Second, nil
}

// keep renews custody's token until ctx ends.
func (s *session) keep(ctx context.Context) {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.refresh(ctx)
	}
}

// refresh renews custody's token, or logs in again, when due. After an error the next tick retries; a caller that needs
// the token meanwhile receives the error.
func (s *session) refresh(ctx context.Context) {
	own := s.token()
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
				s.set(own)
				return
			}
		}
	}
	if s.cfg.Login != LoginToken {
		_, _ = s.relogin(ctx, own)
	}
}

// close revokes custody's token if it came from a login.
func (s *session) close(ctx context.Context) error {
	own := s.token()
	if own.secret == "" || s.cfg.Login == LoginToken {
		return nil
	}
	s.set(token{})
	_, err := s.client.call(ctx, own.secret, http.MethodPost, "auth/token/revoke-self", nil)
	if err != nil && !refused(err, http.StatusForbidden) {
		return fmt.Errorf("log out of Vault: %w", err)
	}
	return nil
}
