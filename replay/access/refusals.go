package access

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// reasonNobody is the reason where a request came without any credential.
const reasonNobody = "no-credential"

func nobody() *Problem {
	return NewProblem(http.StatusUnauthorized, reasonNobody, "the request has no credential",
		"open the link that custody serve printed, log in, or send Authorization: Bearer with a token (custody token new)")
}

func nobodyAtPort() *Problem {
	return NewProblem(http.StatusUnauthorized, reasonNobody, "the request has no credential",
		"open a link of POST /api/v1/sandboxes/ID/ports/PORT/login in the browser; programs send Authorization: Bearer with a token")
}

func badTicket() *Problem {
	return NewProblem(http.StatusUnauthorized, "port-ticket", "the link is not valid: it is unknown, was used before, is older than a minute, or is for another port",
		"make another link: POST /api/v1/sandboxes/ID/ports/PORT/login")
}

func notNavigated() *Problem {
	return NewProblem(http.StatusForbidden, "port-navigation", "the link is for a browser that opens it as a page, and it was not used",
		"open it in a current browser, which names the purpose of its requests (Sec-Fetch-Mode, Sec-Fetch-Dest); programs send Authorization: Bearer with a token")
}

func noServiceWorker() *Problem {
	return NewProblem(http.StatusForbidden, "service-worker", "the pages of ports of sandboxes cannot have service workers", "the page works without one, or is for programs")
}

func otherOrigin() *Problem {
	return NewProblem(http.StatusForbidden, "origin", "a page of another origin has the browser make the request, or it does not say which page does",
		"open the port in a current browser; programs use a token instead of a cookie")
}

func noCORS() *Problem {
	return NewProblem(http.StatusForbidden, "cross-origin", "pages of other origins cannot make requests to a port of a sandbox: each request needs a credential, which a browser does not send to ask for permission (CORS)",
		"make the request from a program, with a token")
}

func badCredential() *Problem {
	return NewProblem(http.StatusUnauthorized, "credential", "the credential is not valid: it is unknown, has expired, or was withdrawn",
		"log in again, or ask for a new token (custody token new)")
}

func severalCredentials() *Problem {
	return NewProblem(http.StatusBadRequest, "credentials", "the request has several credentials", "send one: a cookie, or one Authorization header")
}

func tokensAway() *Problem {
	return NewProblem(http.StatusServiceUnavailable, "tokens-away", "the file of tokens cannot be read, so no token holds",
		"on the host, custody token ls shows the reason")
}

func notGranted() *Problem {
	return NewProblem(http.StatusForbidden, "tenant", "no tenant of that name is granted to you",
		"GET /api/v1/session lists what is; whether there is another one is not said")
}

func whichTenant(grants []Grant) *Problem {
	var names []string
	for _, g := range grants {
		names = append(names, g.Tenant)
	}
	p := NewProblem(http.StatusBadRequest, "which-tenant", "you have several tenants, and the request names none: "+quoted(names),
		"name one, by ?tenant= or by the header Custody-Tenant")
	p.Tenants = names
	return p
}

func quoted(names []string) string {
	var b strings.Builder
	for i, n := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", n)
	}
	return b.String()
}

func roleTooLow(have, need Role) *Problem {
	return NewProblem(http.StatusForbidden, "role", fmt.Sprintf("your role there is %s, and this needs %s", have, need), "ask an admin of the tenant")
}

func notRecorded() *Problem {
	return NewProblem(http.StatusServiceUnavailable, "not-recorded", "that you asked could not be recorded, so nothing is shown",
		"see that the host's disk has room; then try again")
}

func unknownHost(names int) *Problem {
	hint := "use the address that custody serve printed"
	if names > 0 {
		hint = "use a name from serve.names in host.yaml"
	}
	return NewProblem(http.StatusMisdirectedRequest, "host", "the name in the request is not one of this server's", hint)
}

func otherSite() *Problem {
	return NewProblem(http.StatusForbidden, "origin", "the request came from a page of another site", "use Custody's own page, or a token instead of a session")
}

func noGrant() *Problem {
	return NewProblem(http.StatusForbidden, "no-grant", "your login is valid, but has no grants", "ask an admin: serve.oidc.grants in host.yaml names no group of yours")
}

func issuerAway() *Problem {
	p := NewProblem(http.StatusServiceUnavailable, "issuer-away", "the OpenID Connect issuer does not answer, so its tokens cannot be judged", "try again later; tokens of Custody's own work without it")
	p.After = 5 * time.Second
	return p
}

func badState() *Problem {
	return NewProblem(http.StatusUnauthorized, "state", "this is not the answer to a login that this browser began in the last ten minutes", "log in again")
}

func badCode() *Problem {
	return NewProblem(http.StatusUnauthorized, "code", "the issuer's answer is not valid", "log in again")
}
