package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"html/template"
	"net/http"
	"time"

	"github.com/go-jose/go-jose/v3"
	"github.com/ory/fosite"
	"github.com/ory/fosite/compose"
	"github.com/ory/fosite/handler/openid"
	"github.com/ory/fosite/storage"
	"github.com/ory/fosite/token/jwt"
	"golang.org/x/crypto/bcrypt"
)

// provider is the issuer.
type provider struct {
	issuer string
	keys   *keys
	oauth  fosite.OAuth2Provider
	users  map[string]user
}

func newProvider(c config, issuer string) (*provider, error) {
	secret := make([]byte, 32)
	rand.Read(secret)
	conf := &fosite.Config{
		IDTokenIssuer: issuer, GlobalSecret: secret, EnforcePKCE: true, ScopeStrategy: fosite.ExactScopeStrategy,
		IDTokenLifespan: c.life, AccessTokenLifespan: c.life, AuthorizeCodeLifespan: time.Minute,
	}
	p := &provider{issuer: issuer, keys: newKeys(), users: map[string]user{}}
	for _, u := range c.Users {
		p.users[u.Name] = u
	}
	store, err := clients(c)
	if err != nil {
		return nil, err
	}
	key := func(context.Context) (any, error) { return p.keys.current(), nil }
	p.oauth = compose.Compose(conf, store,
		&compose.CommonStrategy{
			CoreStrategy:               compose.NewOAuth2HMACStrategy(conf),
			OpenIDConnectTokenStrategy: compose.NewOpenIDConnectStrategy(key, conf),
			Signer:                     &jwt.DefaultSigner{GetPrivateKey: key},
		},
		compose.OAuth2AuthorizeExplicitFactory, compose.OpenIDConnectExplicitFactory, compose.OAuth2PKCEFactory)
	return p, nil
}

func clients(c config) (*storage.MemoryStore, error) {
	store := storage.NewMemoryStore()
	for _, cl := range c.Clients {
		hash, err := bcrypt.GenerateFromPassword([]byte(cl.Secret), bcrypt.MinCost)
		if err != nil {
			return nil, err
		}
		store.Clients[cl.ID] = &fosite.DefaultClient{
			ID: cl.ID, Secret: hash, Public: cl.Secret == "", RedirectURIs: cl.Redirects,
			ResponseTypes: []string{"code"}, GrantTypes: []string{"authorization_code"},
			Scopes: []string{"openid", "profile", "email", "groups"},
		}
	}
	return store, nil
}

func (p *provider) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.discovery)
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, r *http.Request) { answer(w, p.keys.public()) })
	mux.HandleFunc("/auth", p.auth)
	mux.HandleFunc("POST /token", p.token)
	return mux
}

func (p *provider) discovery(w http.ResponseWriter, r *http.Request) {
	answer(w, map[string]any{
		"issuer": p.issuer, "authorization_endpoint": p.issuer + "/auth", "token_endpoint": p.issuer + "/token", "jwks_uri": p.issuer + "/keys",
		"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": []jose.SignatureAlgorithm{jose.RS256, jose.ES256},
		"code_challenge_methods_supported":      []string{"S256"}, "scopes_supported": []string{"openid", "profile", "email", "groups"},
		"token_endpoint_auth_methods_supported": []string{"client_secret_basic", "client_secret_post", "none"},
	})
}

// form posts to its own URL, whose query is the client's request.
var form = template.Must(template.New("").Parse(`<!doctype html><title>Log in</title>
<form method="post"><label>Name <input name="user" autofocus></label> <label>Password <input name="password" type="password"></label>
<button>Log in</button></form>{{if .}}<p role="alert">{{.}}</p>{{end}}
`))

// auth shows the login form, and redirects a user who logs in to the client with a code.
func (p *provider) auth(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	req, err := p.oauth.NewAuthorizeRequest(ctx, r)
	if err != nil {
		p.oauth.WriteAuthorizeError(ctx, w, req, err)
		return
	}
	if r.Method != http.MethodPost {
		form.Execute(w, "")
		return
	}
	u, ok := p.users[r.PostFormValue("user")]
	if !ok || u.Password != r.PostFormValue("password") {
		w.WriteHeader(http.StatusUnauthorized)
		form.Execute(w, "Name or password is wrong.")
		return
	}
	for _, s := range req.GetRequestedScopes() {
		req.GrantScope(s)
	}
	resp, err := p.oauth.NewAuthorizeResponse(ctx, req, session(u))
	if err != nil {
		p.oauth.WriteAuthorizeError(ctx, w, req, err)
		return
	}
	p.oauth.WriteAuthorizeResponse(ctx, w, req, resp)
}

func session(u user) *openid.DefaultSession {
	s := openid.NewDefaultSession()
	s.Subject, s.Claims.Subject, s.Claims.Extra = u.Name, u.Name, u.Claims
	s.Claims.AuthTime = time.Now().UTC()
	return s
}

func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	req, err := p.oauth.NewAccessRequest(ctx, r, openid.NewDefaultSession())
	if err != nil {
		p.oauth.WriteAccessError(ctx, w, req, err)
		return
	}
	resp, err := p.oauth.NewAccessResponse(ctx, req)
	if err != nil {
		p.oauth.WriteAccessError(ctx, w, req, err)
		return
	}
	p.oauth.WriteAccessResponse(ctx, w, req, resp)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}
