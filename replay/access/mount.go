package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// Mount puts the gate's own routes into mux: the session, and with OIDC the login of browsers.
func (g *Gate) Mount(mux *http.ServeMux) {
	handle := func(route string, rule Rule, h http.HandlerFunc) { mux.Handle(route, g.Guard(route, rule, h)) }
	handle("POST /api/v1/session", Rule{Public: true, Action: "login"}, g.login)
	handle("GET /api/v1/session", Rule{Action: "login", whoever: true}, g.whoAmI)
	handle("DELETE /api/v1/session", Rule{Action: "logout", whoever: true}, g.logout)
	if g.issuer != nil {
		handle("GET /oidc/login", Rule{Public: true, Action: "login", foreign: true}, g.oidcLogin)
		handle("GET "+callback, Rule{Public: true, Action: "login", foreign: true}, g.oidcCallback)
	}
}

// maxLogin is the length of a login's body.
const maxLogin = 4 << 10

// login makes a session of a token or a one-time token.
func (g *Gate) login(w http.ResponseWriter, r *http.Request) {
	q := g.request(r, "POST /api/v1/session", Rule{Action: "login"})
	token, problem := readLogin(r)
	if problem != nil {
		g.refuse(w, q, problem)
		return
	}
	cred, problem := g.byLogin(q, token)
	if problem != nil {
		g.refuse(w, q, problem)
		return
	}
	g.begin(w, q, cred, func(s *session) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		writeJSON(w, s.principal)
	})
}

func readLogin(r *http.Request) (string, *Problem) {
	bad := func(detail string) *Problem {
		return NewProblem(http.StatusBadRequest, "login", detail, `send {"token": "..."} as application/json`)
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return "", bad("a login is not of the type application/json")
	}
	var body struct {
		Token string `json:"token"`
	}
	if err := strictJSON(io.LimitReader(r.Body, maxLogin), &body); err != nil || body.Token == "" {
		return "", bad("a login cannot be read")
	}
	return body.Token, nil
}

// byLogin recognises who logs in.
func (g *Gate) byLogin(q *request, token string) (credential, *Problem) {
	switch {
	case isSecret(token, OncePrefix):
		return g.byOnce(q, token)
	case strings.HasPrefix(token, TokenPrefix):
		return g.byToken(token)
	}
	return credential{}, badCredential()
}

// byOnce lets in who has the printed link and is on this machine.
func (g *Gate) byOnce(q *request, token string) (credential, *Problem) {
	q.event.Via = ViaOnce
	if !q.from.IsLoopback() {
		return credential{}, NewProblem(http.StatusUnauthorized, "once-elsewhere", "a one-time token is good on the host itself only", "open the link there, or use a token")
	}
	ok, used := g.once.take(token)
	switch {
	case used:
		return credential{}, NewProblem(http.StatusUnauthorized, "once-used", "the one-time token was used before", "restart custody serve for a new link, or make a token with custody token new; if it was not you who used it, someone else has a session, which the restart ends")
	case !ok:
		return credential{}, NewProblem(http.StatusUnauthorized, "once-unknown", "the one-time token is not known, or its time is over", "restart custody serve for a new link, or make a token with custody token new")
	}
	var grants []Grant
	for _, tenant := range g.local(q.Context()) {
		grants = append(grants, Grant{tenant, Role(g.config.Local)})
	}
	return credential{principal: Principal{Name: "local", Via: ViaOnce, Grants: grants}, key: "once"}, nil
}

// begin records a login, ends the session that the browser had, and gives it a new one.
func (g *Gate) begin(w http.ResponseWriter, q *request, cred credential, answer func(*session)) {
	q.event.Who, q.event.Via = cred.principal.Name, cred.principal.Via
	if len(cred.principal.Grants) == 1 {
		only := cred.principal.Grants[0]
		cred.principal, _ = cred.principal.in(only.Tenant)
		q.event.Tenant, q.event.Role = only.Tenant, string(only.Role)
	}
	if err := g.journal.allow(q.Context(), q.event); err != nil {
		g.warn(fmt.Sprintf("a login could not be recorded: %v", err))
		notRecorded().Write(w, q.Request)
		return
	}
	for _, c := range q.CookiesNamed(cookieName(q.Request, CookieName)) {
		g.sessions.end(c.Value)
	}
	id, s := g.sessions.open(cred)
	setCookie(w, q.Request, CookieName, id, time.Until(s.principal.Expires), http.SameSiteStrictMode)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	answer(s)
}

// whoAmI tells a page what it may do.
func (g *Gate) whoAmI(w http.ResponseWriter, r *http.Request) {
	p, _ := From(r.Context())
	w.Header().Set("Content-Type", "application/json")
	writeJSON(w, p)
}

// logout ends the session. A token or a JWT has none.
func (g *Gate) logout(w http.ResponseWriter, r *http.Request) {
	p, _ := From(r.Context())
	q := g.request(r, "DELETE /api/v1/session", Rule{Action: "logout"})
	q.event = audit.Access{Who: p.Name, Via: p.Via, Role: string(p.Role), Tenant: p.Tenant, Action: "logout", Route: q.event.Route, Remote: q.event.Remote, Verdict: audit.Allow}
	for _, c := range r.CookiesNamed(cookieName(r, CookieName)) {
		g.sessions.end(c.Value)
	}
	setCookie(w, r, CookieName, "", -1, http.SameSiteStrictMode)
	if err := g.journal.allow(r.Context(), q.event); err != nil { // it is over all the same
		g.warn(fmt.Sprintf("a logout could not be recorded: %v", err))
		notRecorded().Write(w, r)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func writeJSON(w io.Writer, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(errors.Join(errors.New("an answer cannot be encoded"), err))
	}
	w.Write(append(data, '\n'))
}
