package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/custody-project/custody/netpolicy"
)

// overrides denies requests, under rules that restrict methods or paths, that make some servers use another method or
// path than the request line's: with header fields, or with query parameters that name a method which the rules do not
// allow here. It does not check bodies, and other parameters.
func (x *exchanger) overrides(r *netpolicy.Rule, q *ask, path, query string) *refusal {
	if r.HTTP == nil || len(r.HTTP.Methods)+len(r.HTTP.Paths) == 0 {
		return nil
	}
	for name := range q.header {
		if overrideField(name) {
			return denied("%s can override the method or path that the rule has allowed", shorten(http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))))
		}
	}
	for part := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, value, _ := strings.Cut(part, "=")
		method := overridingMethod(unescape(name), unescape(value))
		if method == "" || method == q.method {
			continue
		}
		asked := x.conn.to.question()
		asked.Request = &netpolicy.Request{Method: method, Path: path}
		if !netpolicy.Decide(x.conn.g.cfg.Live.Current().Policy, asked).Allow {
			return denied("the query asks for the method %s (%s), which the rule does not allow here", shorten(method), shorten(unescape(name)))
		}
	}
	return nil
}

// overrideField reports whether servers or proxies take another method or path from a field with this name. It has many
// names, like authField.
func overrideField(name string) bool {
	plain := squash(name)
	if plain == "accesscontrolrequestmethod" { // a browser's CORS preflight names a method
		return false
	}
	if slices.Contains(overrideNames, plain) || slices.ContainsFunc(overrideParts, func(part string) bool { return strings.Contains(plain, part) }) {
		return true
	}
	return slices.ContainsFunc(pathWords, func(word string) bool { return strings.HasSuffix(plain, word) }) &&
		slices.ContainsFunc(pathOrigins, func(word string) bool { return strings.Contains(plain, word) })
}

// Case, '-' and '_' are ignored.
var (
	// A field whose name contains one of these: X-HTTP-Method-Override, X-Method, X-Override-URL, X-Amz-Copy-Source.
	overrideParts = []string{"method", "override", "rewrite", "copysource"}
	// Complete names. Destination is WebDAV's second path.
	overrideNames = []string{"verb", "xverb", "httpverb", "xhttpverb", "destination", "url", "uri", "xurl", "xuri", "httpurl", "xhttpurl", "pathinfo", "xpathinfo", "scriptname", "xscriptname"}
	// A field whose name ends in one of the first and contains one of the second: X-Original-URL, X-Forwarded-Prefix.
	pathWords   = []string{"url", "uri", "path", "prefix", "querystring"}
	pathOrigins = []string{"original", "forwarded", "request", "real", "proxy", "destination", "base", "internal"}
)

// overridingMethod returns, in upper case, the method that servers may take from a parameter, or "": _method=DELETE,
// X-HTTP-Method-Override=PUT, method=delete.
func overridingMethod(name, value string) string {
	value = strings.ToUpper(strings.TrimSpace(value))
	bare, _, _ := strings.Cut(name, "[")
	plain := squash(bare)
	if value == "" || !strings.Contains(plain, "method") && !strings.HasSuffix(plain, "verb") {
		return ""
	}
	if strings.HasPrefix(name, "_") || strings.Contains(plain, "override") || slices.Contains(methods, value) {
		return value
	}
	return "" // method=card, requestMethodName=sum
}

// methods are the values for which a parameter with an ambiguous name counts as a method.
var methods = []string{"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"}
