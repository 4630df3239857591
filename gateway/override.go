package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/custody-project/custody/netpolicy"
)

// overrides refuses, where a rule looks at methods or paths, what has some servers take another method or
// path than the request line's: fields of the header, and parameters of the query that name a method which the
// rules do not allow here. Bodies are not looked at, nor what a server makes of other parameters.
func (x *exchanger) overrides(r *netpolicy.Rule, q *ask, path, query string) *refusal {
	if r.HTTP == nil || len(r.HTTP.Methods)+len(r.HTTP.Paths) == 0 {
		return nil
	}
	for name := range q.header {
		if overrideField(name) {
			return denied("%s asks for another method or path than the rule is asked about", shorten(http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))))
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

// overrideField reports whether a field's name is one by which servers, or what stands before them, take
// another method or path. It is wide, like authField.
func overrideField(name string) bool {
	plain := squash(name)
	if plain == "accesscontrolrequestmethod" { // a browser announces a method
		return false
	}
	if slices.Contains(overrideNames, plain) || slices.ContainsFunc(overrideParts, func(part string) bool { return strings.Contains(plain, part) }) {
		return true
	}
	return slices.ContainsFunc(pathWords, func(word string) bool { return strings.HasSuffix(plain, word) }) &&
		slices.ContainsFunc(pathOrigins, func(word string) bool { return strings.Contains(plain, word) })
}

// Words are compared without regard to case, '-' and '_'.
var (
	// A field with one of these in its name: X-HTTP-Method-Override, X-Method, X-Override-URL, X-Amz-Copy-Source.
	overrideParts = []string{"method", "override", "rewrite", "copysource"}
	// These fields as a whole. Destination is WebDAV's second path.
	overrideNames = []string{"verb", "xverb", "httpverb", "xhttpverb", "destination", "url", "uri", "xurl", "xuri", "httpurl", "xhttpurl", "pathinfo", "xpathinfo", "scriptname", "xscriptname"}
	// A field that ends in one of the first and has one of the second: X-Original-URL, X-Forwarded-Prefix.
	pathWords   = []string{"url", "uri", "path", "prefix", "querystring"}
	pathOrigins = []string{"original", "forwarded", "request", "real", "proxy", "destination", "base", "internal"}
)

// overridingMethod returns the method that a parameter names for servers which take one from there, in
// capitals, or nothing: _method=DELETE, X-HTTP-Method-Override=PUT, method=delete.
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

// methods are those that a parameter which may mean something else is taken for.
var methods = []string{"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"}
