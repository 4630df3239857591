package access

import (
	"net/http"
	"strings"
	"time"
)

// credential is what a principal was recognised by.
type credential struct {
	principal Principal // without tenant and role, which are a request's
	key       string    // of its rate; the same for all sessions of one token or user
	holds     func() bool
}

// stands reports whether it still holds.
func (c credential) stands() bool {
	e := c.principal.Expires
	return (e.IsZero() || time.Now().Before(e)) && (c.holds == nil || c.holds())
}

// checkHost refuses names that are not the server's: a page of evil.example whose name was
// made to lead here would otherwise be of the same origin.
func (g *Gate) checkHost(r *http.Request) *Problem {
	if host, ok := hostname(r.Host); ok && g.known[host] {
		return nil
	}
	return unknownHost(len(g.config.Names))
}

// checkOrigin refuses what a page of another site had a browser send. Where SameSite ends, at
// another port of this host, browsers say same-site, which is another site all the same.
func (g *Gate) checkOrigin(q *request) *Problem {
	if q.rule.foreign {
		return nil
	}
	if err := g.origin.Check(q.Request); err != nil {
		return otherSite()
	}
	switch q.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return nil
	}
	return otherSite()
}

// checkCookie asks of a change that rests on a cookie to report where it comes from. Browsers do.
func checkCookie(q *request) *Problem {
	safe := q.Method == http.MethodGet || q.Method == http.MethodHead
	if !q.cookie || safe || q.Header.Get("Origin") != "" || q.Header.Get("Sec-Fetch-Site") != "" {
		return nil
	}
	return otherSite()
}

// who recognises the principal by the one credential of the request.
func (g *Gate) who(q *request) (credential, *Problem) {
	bearer, cookie, problem := presented(q.Request)
	switch {
	case problem != nil:
		return credential{}, problem
	case cookie != "":
		q.cookie = true
		if c, ok := g.sessions.find(cookie); ok {
			return c, nil
		}
		return credential{}, badCredential()
	case strings.HasPrefix(bearer, TokenPrefix):
		return g.byToken(bearer)
	case g.issuer != nil && isJWT(bearer):
		return g.issuer.bearer(q.Context(), bearer)
	case bearer != "":
		return credential{}, badCredential()
	}
	return credential{}, nobody()
}

// presented returns what a request has for a credential: one, or a problem.
func presented(r *http.Request) (bearer, cookie string, _ *Problem) {
	headers := r.Header.Values("Authorization")
	cookies := r.CookiesNamed(cookieName(r, CookieName))
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

// maxBearer is the length of the longest credential that is looked at.
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

func (g *Gate) byToken(text string) (credential, *Problem) {
	if !isSecret(text, TokenPrefix) {
		return credential{}, badCredential()
	}
	tok, ok, err := g.tokens.find(text)
	switch {
	case err != nil:
		return credential{}, tokensAway()
	case !ok:
		return credential{}, badCredential()
	}
	return credential{
		principal: Principal{Name: tok.Name, Via: ViaToken, Grants: []Grant{{tok.Tenant, tok.Role}}, Expires: tok.Expires},
		key:       "token " + tok.ID,
		holds:     func() bool { return g.tokens.holds(tok) },
	}, nil
}
