package vault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/vault/api"
)

// token is a Vault token, in the state of Vault's last response about it.
type token struct {
	secret, accessor string
	renewable        bool
	since            time.Time // before the request
	ttl              time.Duration
}

// ends returns when the token expires; never, if it has no TTL.
func (t token) ends() (time.Time, bool) { return t.since.Add(t.ttl), t.ttl > 0 }

// dead reports whether the token has expired.
func (t token) dead(now time.Time) bool {
	end, does := t.ends()
	return does && !now.Before(end)
}

// due reports whether half of the token's lifetime has passed.
func (t token) due(now time.Time) bool {
	return t.ttl > 0 && now.Sub(t.since) >= t.ttl/2
}

// tokenOf returns the token in the response to a login or a creation.
func tokenOf(s *api.Secret, since time.Time) (token, error) {
	if s == nil || s.Auth == nil || s.Auth.ClientToken == "" || s.Auth.Accessor == "" {
		return token{}, errors.New("Vault did not return a token that can be revoked: is the login or role configured for batch tokens?")
	}
	return token{
		secret: s.Auth.ClientToken, accessor: s.Auth.Accessor, renewable: s.Auth.Renewable,
		since: since, ttl: time.Duration(s.Auth.LeaseDuration) * time.Second,
	}, nil
}

// login logs in and returns the token. It reads the credential from its file each time, because they may have been
// rotated.
func (c *client) login(ctx context.Context, cfg Config) (token, error) {
	if cfg.Login == LoginToken {
		return c.givenToken(ctx, cfg)
	}
	body, err := credentials(cfg)
	if err != nil {
		return token{}, fmt.Errorf("log in to Vault with %s: %w", cfg.Login, err)
	}
	since := time.Now()
	s, err := c.call(ctx, "", http.MethodPost, "auth/"+or(cfg.Mount, cfg.Login)+"/login", body)
	if err != nil {
		return token{}, fmt.Errorf("log in to Vault with %s: %w", cfg.Login, err)
	}
	return tokenOf(s, since)
}

func credentials(cfg Config) (map[string]any, error) {
	if cfg.Login == LoginAppRole {
		body := map[string]any{"role_id": cfg.RoleID}
		if cfg.SecretIDFile == "" {
			return body, nil
		}
		id, err := cfg.place().Credential()
		body["secret_id"] = id
		return body, err
	}
	jwt, err := cfg.place().Credential()
	return map[string]any{"role": cfg.Role, "jwt": jwt}, err
}

// givenToken looks up the caller's token at Vault.
func (c *client) givenToken(ctx context.Context, cfg Config) (token, error) {
	secret := cfg.Token
	if secret == "" && cfg.TokenFile == "" {
		return token{}, errors.New("there is no token for Vault: set VAULT_TOKEN, or choose another login method with CUSTODY_VAULT_LOGIN")
	}
	if secret == "" {
		var err error
		if secret, err = cfg.place().Credential(); err != nil {
			return token{}, fmt.Errorf("there is no token for Vault: set VAULT_TOKEN, or log in with vault login, or choose another method with CUSTODY_VAULT_LOGIN: %w", err)
		}
	}
	since := time.Now()
	s, err := c.call(ctx, secret, http.MethodGet, "auth/token/lookup-self", nil)
	if refused(err, http.StatusForbidden) {
		return token{}, errors.New("Vault does not accept custody's token: it has ended, or may not look itself up (auth/token/lookup-self); log in again and check its policy (docs/vault.md)")
	}
	if err != nil {
		return token{}, err
	}
	t := token{secret: secret, since: since}
	if s != nil {
		ttl, _ := s.Data["ttl"].(json.Number)
		seconds, _ := ttl.Int64()
		t.ttl = time.Duration(seconds) * time.Second
		t.accessor, _ = s.Data["accessor"].(string)
		t.renewable, _ = s.Data["renewable"].(bool)
	}
	if t.accessor == "" {
		return token{}, errors.New("custody's token for Vault has no accessor: a batch token cannot make others; use a service token")
	}
	return t, nil
}
