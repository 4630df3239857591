package access

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// TokenHeader has the credential of a request to a port of a sandbox whose header Authorization is for the sandbox.
const TokenHeader = "Custody-Token"

// tenantHeader names the tenant of a request.
const tenantHeader = "Custody-Tenant"

// preflightHeader is in the requests that browsers make to ask whether a page may make another one (CORS). They have no credential.
const preflightHeader = "Access-Control-Request-Method"

// isPreflight reports whether a request to a port is such a question.
func isPreflight(q *request) bool {
	return q.rule.Port && q.Method == http.MethodOptions && q.Header.Get(preflightHeader) != ""
}

// PortHost returns the port and the sandbox that a Host header names: PORT-SANDBOX.DOMAIN, where DOMAIN is c.PortDomain.
func (c Config) PortHost(header string) (port int, sandbox string, ok bool) {
	host, ok := hostname(header)
	if !ok || c.PortDomain == "" {
		return 0, "", false
	}
	label, ok := strings.CutSuffix(host, "."+strings.ToLower(c.PortDomain))
	if !ok {
		return 0, "", false
	}
	number, sandbox, ok := strings.Cut(label, "-")
	port, err := strconv.Atoi(number)
	if !ok || err != nil || port < 1 || port > 65535 || strconv.Itoa(port) != number || sandbox == "" || strings.Contains(sandbox, ".") {
		return 0, "", false
	}
	return port, sandbox, true
}

// PortName returns the host name of a port of a sandbox; "" if there are no such names.
func (c Config) PortName(port int, sandbox string) string {
	if c.PortDomain == "" {
		return ""
	}
	return fmt.Sprintf("%d-%s.%s", port, sandbox, strings.ToLower(c.PortDomain))
}

func (c Config) isPort(host string) bool {
	_, _, ok := c.PortHost(host)
	return ok
}

// checkPortDomain refuses a domain whose hosts could be taken for the server, or could set cookies that browsers send to it.
func (c Config) checkPortDomain() error {
	domain, ok := hostname(c.PortDomain)
	_, addrErr := netip.ParseAddr(domain)
	switch {
	case c.PortDomain == "":
		return nil
	case !ok || addrErr == nil || c.PortDomain != domain || strings.HasPrefix(domain, ".") || strings.HasSuffix(domain, ".") || len(domain) > 180:
		return &ConfigError{fmt.Sprintf("port_domain: %q is not a domain name", c.PortDomain), "write it in lower case, without scheme, port and *: sandboxes.example.net"}
	}
	for _, name := range c.Names {
		name, _ = knownAs(name)
		if name != loopbackNetwork && (name == domain || strings.HasSuffix(name, "."+domain)) {
			return &ConfigError{fmt.Sprintf("port_domain: %s is in names, and the sandboxes would be below it or beside it", name), "use a domain for sandboxes alone"}
		}
	}
	return nil
}

// portView returns what the gate checks of a request to a port of a sandbox: the credential, where a browser has it from, and the tenant of the
// header. The query, the other cookies and, beside TokenHeader or PortCookie, Authorization are for the sandbox. Its query is the method and the
// path, for the access event.
func portView(r *http.Request) *http.Request {
	v := r.Clone(r.Context())
	v.URL = &url.URL{Path: r.URL.Path, RawQuery: url.Values{"method": {r.Method}, "path": {r.URL.Path}}.Encode()}
	v.Header = http.Header{}
	for _, name := range []string{tenantHeader, preflightHeader, "Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest", "Upgrade", workerHeader} {
		if values := r.Header.Values(name); len(values) > 0 {
			v.Header[name] = values
		}
	}
	for _, c := range portCookies(r) {
		v.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
	}
	theirs := slices.Clone(r.Header.Values("Authorization"))
	if isTheirs(r) {
		theirs = slices.DeleteFunc(theirs, func(h string) bool { return !strings.Contains(h, TokenPrefix) }) // a token there is a mistake
	}
	for _, token := range r.Header.Values(TokenHeader) {
		v.Header.Add("Authorization", "Bearer "+token)
	}
	for _, h := range theirs {
		v.Header.Add("Authorization", h)
	}
	return v
}

func portCookies(r *http.Request) []*http.Cookie { return r.CookiesNamed(cookieName(r, PortCookie)) }

// isTheirs reports whether the header Authorization is for the sandbox, because the credential is elsewhere.
func isTheirs(r *http.Request) bool {
	return len(r.Header.Values(TokenHeader)) > 0 || len(portCookies(r)) > 0
}

// forSandbox removes all that is Custody's from a request to a port of a sandbox.
func forSandbox(r *http.Request) *http.Request {
	r = r.Clone(r.Context())
	if !isTheirs(r) {
		r.Header.Del("Authorization")
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "Custody-") {
			r.Header.Del(name)
		}
	}
	var cookies []string
	for _, line := range r.Header.Values("Cookie") {
		for pair := range strings.SplitSeq(line, ";") {
			if pair = strings.TrimSpace(pair); !OwnCookie(pair) {
				cookies = append(cookies, pair)
			}
		}
	}
	r.Header.Del("Cookie")
	if len(cookies) > 0 {
		r.Header.Set("Cookie", strings.Join(cookies, "; "))
	}
	return r
}

// OwnCookie reports whether a cookie, as headers have it, is one of Custody's by its name.
func OwnCookie(pair string) bool {
	return strings.HasPrefix(strings.TrimPrefix(strings.TrimSpace(pair), hostPrefix), "custody_")
}
