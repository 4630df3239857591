package access

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// credential is what a principal was recognised by.
type credential struct {
	principal Principal // without tenant and role, which are a request's
	key       string    // the same for all sessions of one token or user
	holds     func() bool
	at        portAddress // the only one where it is valid; zero: the API
}

type credentialKey struct{}

// into returns a context with c.
func (c credential) into(ctx context.Context) context.Context {
	return context.WithValue(ctx, credentialKey{}, c)
}

// bucket is the key of its rate. The page of a port cannot use up that of its user.
func (c credential) bucket() string {
	if c.at == (portAddress{}) {
		return c.key
	}
	return "port " + c.at.port + "-" + c.at.sandbox + " " + c.key
}

// stands reports whether it is still valid.
func (c credential) stands() bool {
	e := c.principal.Expires
	return (e.IsZero() || time.Now().Before(e)) && (c.holds == nil || c.holds())
}

// checkCookie requires that a change with a cookie names its origin, as browsers do.
func checkCookie(q *request) *Problem {
	if q.cookie && q.rule.Port {
		return checkPortOrigin(q)
	}
	safe := q.Method == http.MethodGet || q.Method == http.MethodHead
	if !q.cookie || safe || q.Header.Get("Origin") != "" || q.Header.Get("Sec-Fetch-Site") != "" {
		return nil
	}
	return otherSite()
}

// authenticator finds the principal of a credential.
type authenticator struct {
	tokens   *Tokens
	sessions sessions
	ports    portLogins
	issuer   *issuer // nil without OIDC
	once     once
	local    func(ctx context.Context) []string // the tenants of a one-time token
	role     Role                               // its role there
}

// identify recognises the principal by the one credential of the request.
func (a *authenticator) identify(q *request) (credential, *Problem) {
	from, name := &a.sessions, CookieName
	if q.rule.Port {
		from, name = &a.ports.cookies, PortCookie
	}
	bearer, cookie, problem := presented(q.Request, name)
	switch {
	case problem != nil:
		return credential{}, problem
	case cookie != "":
		q.cookie = true
		if c, ok := from.find(cookie); ok && (!q.rule.Port || c.at == portOf(q.Request)) {
			return c, nil
		}
		return credential{}, badCredential()
	case strings.HasPrefix(bearer, TokenPrefix):
		return a.byToken(bearer)
	case a.issuer != nil && isJWT(bearer):
		return a.issuer.bearer(q.Context(), bearer)
	case bearer != "":
		return credential{}, badCredential()
	}
	return credential{}, nobody()
}

// presented returns what a request has for a credential: one, or a problem. name is that of the cookie.
func presented(r *http.Request, name string) (bearer, cookie string, _ *Problem) {
	headers := r.Header.Values("Authorization")
	cookies := r.CookiesNamed(cookieName(r, name))
	if len(headers)+len(cookies) > 1 {
		return "", "", severalCredentials()
	}
	if len(cookies) == 1 {
		if cookies[0].Value == "" {
			return "", "", badCredential()
		}
		return "", cookies[0].Value, nil
	}
	if len(headers) == 0 {
		return "", "", nil
	}
	bearer, ok := parseBearer(headers[0])
	if !ok {
		return "", "", badCredential()
	}
	return bearer, "", nil
}

// maxBearer is the maximum length of a credential.
const maxBearer = 16 << 10

// parseBearer returns the token of an Authorization header (RFC 6750, section 2.1).
func parseBearer(header string) (string, bool) {
	scheme, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxBearer {
		return "", false
	}
	return token, !strings.ContainsFunc(token, func(r rune) bool {
		return r >= 0x80 || !isSecretByte(byte(r)) && !strings.ContainsRune(".~+/=", r)
	})
}

// isJWT reports whether a token has the compact form of a JWS (RFC 7515, section 7.1).
func isJWT(token string) bool {
	return strings.Count(token, ".") == 2 && !strings.ContainsAny(token, "~+/=")
}

func (a *authenticator) byToken(text string) (credential, *Problem) {
	if !isSecret(text, TokenPrefix) {
		return credential{}, badCredential()
	}
	tok, ok, err := a.tokens.find(text)
	switch {
	case err != nil:
		return credential{}, tokensAway()
	case !ok:
		return credential{}, badCredential()
	}
	return credential{
		principal: Principal{Name: tok.Name, Via: ViaToken, Grants: []Grant{{tok.Tenant, tok.Role}}, Expires: tok.Expires},
		key:       "token " + tok.ID,
		holds:     func() bool { return a.tokens.holds(tok) },
	}, nil
}

// byLogin recognises the principal that logs in.
func (a *authenticator) byLogin(q *request, token string) (credential, *Problem) {
	switch {
	case isSecret(token, OncePrefix):
		return a.byOnce(q, token)
	case strings.HasPrefix(token, TokenPrefix):
		return a.byToken(token)
	}
	return credential{}, badCredential()
}

// byOnce accepts the one-time token of the printed link, from this machine.
func (a *authenticator) byOnce(q *request, token string) (credential, *Problem) {
	q.event.Via = ViaOnce
	if !q.from.IsLoopback() {
		return credential{}, NewProblem(http.StatusUnauthorized, "once-elsewhere", "a one-time token is valid on the host itself only", "open the link there, or use a token")
	}
	ok, used := a.once.take(token)
	switch {
	case used:
		return credential{}, NewProblem(http.StatusUnauthorized, "once-used", "the one-time token was used before", "restart custody serve for a new link, or make a token with custody token new; if you did not use it, someone else has a session, which the restart ends")
	case !ok:
		return credential{}, NewProblem(http.StatusUnauthorized, "once-unknown", "the one-time token is unknown or has expired", "restart custody serve for a new link, or make a token with custody token new")
	}
	var grants []Grant
	for _, tenant := range a.local(q.Context()) {
		grants = append(grants, Grant{tenant, a.role})
	}
	return credential{principal: Principal{Name: "local", Via: ViaOnce, Grants: grants}, key: "once"}, nil
}
