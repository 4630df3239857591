package access

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/oauth2"

	"github.com/custody-project/custody/audit"
)

// A browser logs in by the authorization code flow with PKCE (RFC 7636, S256):
//
//	/oidc/login ----- state, nonce, challenge ----> issuer
//	     | cookie: state, nonce, verifier, sealed      | code, state
//	     v                                             v
//	  browser --------------- cookie ----------> /oidc/callback --- code, verifier ---> issuer
//	                                                   | ID token: nonce, audience, ...
//	                                                   v
//	                                                a session
//
// The cookie binds the response to the browser that sent the request. It is sealed with a key of this process and
// is valid for loginTime; a state is valid once.
type login struct {
	State    string    `json:"s"`
	Nonce    string    `json:"n"`
	Verifier string    `json:"v"`
	Redirect string    `json:"r"`
	Next     string    `json:"t"`
	Until    time.Time `json:"u"`
}

const (
	loginTime   = 10 * time.Minute
	loginCookie = "custody_login"
	callback    = "/oidc/callback"
)

// seal makes cookies that only this process can make and read.
type seal struct{ aead cipher.AEAD }

func newSeal() seal {
	key := make([]byte, 32)
	rand.Read(key)
	block, err := aes.NewCipher(key)
	if err != nil { // of the key's length
		panic(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return seal{aead}
}

func (s seal) close(l login) string {
	plain, err := json.Marshal(l)
	if err != nil { // of strings and a time
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, []byte(loginCookie)))
}

func (s seal) open(text string) (login, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return login{}, false
	}
	plain, err := s.aead.Open(nil, nil, b, []byte(loginCookie))
	var l login
	ok := err == nil && json.Unmarshal(plain, &l) == nil && time.Now().Before(l.Until)
	return l, ok
}

// usedStates are those that came back. The issuer keeps a code from being used twice; this keeps
// the second try from reaching it. The oldest are forgotten, by then out of date or as good as.
type usedStates struct {
	mu *sync.Mutex // guards of
	of *lru.Cache[digest, struct{}]
}

func newUsedStates() usedStates {
	cache, err := lru.New[digest, struct{}](4096)
	if err != nil { // of a size below 1
		panic(err)
	}
	return usedStates{new(sync.Mutex), cache}
}

// use reports whether a state comes for the first time.
func (u usedStates) use(state string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	sum := digestOf(state)
	if u.of.Contains(sum) {
		return false
	}
	u.of.Add(sum, struct{}{})
	return true
}

// oauth returns the client's side of the flow.
func (i *issuer) oauth(p *provider, redirect string) (*oauth2.Config, error) {
	secret, err := i.conf.secret()
	return &oauth2.Config{
		ClientID: i.conf.ClientID, ClientSecret: secret, Endpoint: p.Endpoint(), RedirectURL: redirect,
		Scopes: append([]string{oidc.ScopeOpenID}, i.conf.Scopes...),
	}, err
}

// oidcHandler answers the routes of logins with OIDC.
type oidcHandler struct {
	sessions *sessionHandler
	issuer   *issuer
}

// login sends the browser to the issuer.
func (h *oidcHandler) login(w http.ResponseWriter, r *http.Request) {
	q := h.request(r, "GET /oidc/login")
	p, err := h.issuer.discover(r.Context())
	if err != nil {
		h.sessions.refuser.refusePage(w, q, issuerAway())
		return
	}
	state, _ := newSecret("")
	nonce, _ := newSecret("")
	l := login{State: state, Nonce: nonce, Verifier: oauth2.GenerateVerifier(), Redirect: redirectURL(r),
		Next: localPath(r.URL.Query().Get("next")), Until: time.Now().Add(loginTime)}
	client, err := h.issuer.oauth(p, l.Redirect)
	if err != nil {
		h.sessions.warn("oidc: " + err.Error())
		h.sessions.refuser.refusePage(w, q, issuerAway())
		return
	}
	setCookie(w, r, loginCookie, h.issuer.seal.close(l), loginTime, http.SameSiteLaxMode)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	http.Redirect(w, r, client.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(l.Verifier)), http.StatusSeeOther)
}

// redirectURL is the URL to which the issuer redirects the browser: this server, under the host name of the request.
func redirectURL(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host + callback
}

// localPath returns where to go after the login: a path of this server, / if it is anything else.
func localPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || u.Scheme != "" || u.Host != "" || u.User != nil ||
		strings.ContainsFunc(next, func(r rune) bool {
			return r == '\\' || unicode.IsControl(r) || unicode.IsSpace(r) || r == unicode.ReplacementChar
		}) {
		return "/"
	}
	return next
}

// callback handles the issuer's response and begins a session.
func (h *oidcHandler) callback(w http.ResponseWriter, r *http.Request) {
	q := h.request(r, "GET "+callback)
	setCookie(w, r, loginCookie, "", -1, http.SameSiteLaxMode)
	l, code, problem := h.issuer.answer(r)
	if problem != nil {
		h.sessions.refuser.refusePage(w, q, problem)
		return
	}
	id, problem := h.issuer.exchange(r.Context(), l, code)
	if problem != nil {
		h.sessions.refuser.refusePage(w, q, problem)
		return
	}
	p, problem := h.issuer.principal(id)
	q.event.Who = p.Name
	if problem == nil && len(p.Grants) == 0 {
		problem = noGrant()
	}
	if problem != nil {
		h.sessions.refuser.refusePage(w, q, problem)
		return
	}
	h.sessions.begin(w, q, credential{principal: p, key: "oidc " + id.Subject}, func(*session) {
		w.Header().Set("Referrer-Policy", "no-referrer")
		http.Redirect(w, r, l.Next, http.StatusSeeOther)
	})
}

// answer reads what the issuer sent through the browser, and checks that this browser began the login.
func (i *issuer) answer(r *http.Request) (login, string, *Problem) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	cookies := r.CookiesNamed(cookieName(r, loginCookie))
	if err != nil || len(cookies) != 1 || len(query["state"]) != 1 {
		return login{}, "", badState()
	}
	l, ok := i.seal.open(cookies[0].Value)
	if !ok || subtle.ConstantTimeCompare([]byte(l.State), []byte(query.Get("state"))) != 1 || l.Redirect != redirectURL(r) || !i.states.use(l.State) {
		return login{}, "", badState()
	}
	p, err := i.discover(r.Context())
	switch iss := query["iss"]; {
	case err != nil:
		return login{}, "", issuerAway()
	case p.NamesIn && len(iss) == 0, len(iss) > 1, len(iss) == 1 && iss[0] != i.conf.Issuer:
		return login{}, "", badState()
	case len(query["error"]) > 0 || len(query["code"]) != 1:
		return login{}, "", NewProblem(http.StatusUnauthorized, "issuer-refused", "the issuer did not let you in", "log in again")
	}
	return l, query.Get("code"), nil
}

// exchange redeems the code at the issuer and verifies the tokens.
func (i *issuer) exchange(ctx context.Context, l login, code string) (identity, *Problem) {
	p, err := i.discover(ctx)
	if err != nil {
		return identity{}, issuerAway()
	}
	client, err := i.oauth(p, l.Redirect)
	if err != nil {
		return identity{}, issuerAway()
	}
	tok, err := client.Exchange(oidc.ClientContext(ctx, i.client), code, oauth2.VerifierOption(l.Verifier))
	var said *oauth2.RetrieveError
	switch {
	case errors.As(err, &said) && said.Response.StatusCode < 500:
		return identity{}, badCode()
	case err != nil:
		return identity{}, issuerAway()
	}
	raw, _ := tok.Extra("id_token").(string)
	if !isJWT(raw) {
		return identity{}, badCode()
	}
	id, err := i.verify(ctx, raw, i.conf.ClientID)
	switch {
	case errors.Is(err, errAway):
		return identity{}, issuerAway()
	case err != nil || subtle.ConstantTimeCompare([]byte(id.nonce), []byte(l.Nonce)) != 1:
		return identity{}, badCode()
	}
	return id, nil
}

// request describes a request whose query is not recorded: it has the code.
func (h *oidcHandler) request(r *http.Request, route string) *request {
	q := newRequest(r, route, Rule{Action: "login"}, h.sessions.tenant)
	q.event.Via, q.event.Query = ViaOIDC, audit.Text("")
	return q
}
