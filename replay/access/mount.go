package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/custody-project/custody/audit"
)

// Mount puts the gate's own routes into mux: the session, and with OIDC the login of browsers.
func (g *Gate) Mount(mux *http.ServeMux) {
	handle := func(route string, rule Rule, h http.HandlerFunc) { mux.Handle(route, g.Guard(route, rule, h)) }
	h := &sessionHandler{g.auth, g.refuser, g.journal, g.tenant, g.warn}
	handle("POST /api/v1/session", Rule{Public: true, Action: "login"}, h.login)
	handle("GET /api/v1/session", Rule{Action: "login", anyTenant: true}, whoAmI)
	handle("DELETE /api/v1/session", Rule{Action: "logout", anyTenant: true}, h.logout)
	if g.auth.issuer != nil {
		o := &oidcHandler{h, g.auth.issuer}
		handle("GET /oidc/login", Rule{Public: true, Action: "login", foreign: true}, o.login)
		handle("GET "+callback, Rule{Public: true, Action: "login", foreign: true}, o.callback)
	}
}

// sessionHandler answers the routes of the session.
type sessionHandler struct {
	auth    *authenticator
	refuser *refuser
	journal *journal
	tenant  string // of the host
	warn    func(string)
}

// maxLogin is the length of a login's body.
const maxLogin = 4 << 10

// login makes a session of a token or a one-time token.
func (h *sessionHandler) login(w http.ResponseWriter, r *http.Request) {
	q := newRequest(r, "POST /api/v1/session", Rule{Action: "login"}, h.tenant)
	token, problem := readLogin(r)
	if problem != nil {
		h.refuser.refuse(w, q, problem)
		return
	}
	cred, problem := h.auth.byLogin(q, token)
	if problem != nil {
		h.refuser.refuse(w, q, problem)
		return
	}
	h.begin(w, q, cred, func(s *session) {
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

// begin records a login, ends the previous session of the browser, and begins a new one.
func (h *sessionHandler) begin(w http.ResponseWriter, q *request, cred credential, answer func(*session)) {
	q.event.Who, q.event.Via = cred.principal.Name, cred.principal.Via
	if len(cred.principal.Grants) == 1 {
		only := cred.principal.Grants[0]
		cred.principal, _ = cred.principal.in(only.Tenant)
		q.event.Tenant, q.event.Role = only.Tenant, string(only.Role)
	}
	if err := h.journal.allow(q.Context(), q.event); err != nil {
		h.warn(fmt.Sprintf("a login could not be recorded: %v", err))
		notRecorded().Write(w, q.Request)
		return
	}
	for _, c := range q.CookiesNamed(cookieName(q.Request, CookieName)) {
		h.auth.sessions.end(c.Value)
	}
	id, s := h.auth.sessions.open(cred)
	setCookie(w, q.Request, CookieName, id, time.Until(s.principal.Expires), http.SameSiteStrictMode)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	answer(s)
}

// whoAmI answers what the principal may do.
func whoAmI(w http.ResponseWriter, r *http.Request) {
	p, _ := From(r.Context())
	w.Header().Set("Content-Type", "application/json")
	writeJSON(w, p)
}

// logout ends the session. A token or a JWT has none.
func (h *sessionHandler) logout(w http.ResponseWriter, r *http.Request) {
	p, _ := From(r.Context())
	q := newRequest(r, "DELETE /api/v1/session", Rule{Action: "logout"}, h.tenant)
	q.event = audit.Access{Who: p.Name, Via: p.Via, Role: string(p.Role), Tenant: p.Tenant, Action: "logout", Route: q.event.Route, Remote: q.event.Remote, Verdict: audit.Allow}
	for _, c := range r.CookiesNamed(cookieName(r, CookieName)) {
		h.auth.sessions.end(c.Value)
	}
	setCookie(w, r, CookieName, "", -1, http.SameSiteStrictMode)
	if err := h.journal.allow(r.Context(), q.event); err != nil { // it is over all the same
		h.warn(fmt.Sprintf("a logout could not be recorded: %v", err))
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
