package gateway

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// ask is a request of the guest, HTTP/1 or HTTP/2, as received.
type ask struct {
	proto   string // HTTP/1.1, HTTP/2.0
	method  string
	target  string      // path and query; with HTTP/1 possibly the whole URL
	host    string      // Host or :authority
	header  http.Header // without Host and the fields that frame the body
	length  int64       // of the body; -1 if unknown
	body    contents
	no      *refusal // not nil: deny the request for this reason
	trailer bool     // the guest accepts trailers
}

// vet checks the requirements for every request, under whatever rule, and returns its URL: of the destination's name,
// with path and query as received.
func (x *exchanger) vet(q *ask) (*url.URL, *refusal) {
	switch {
	case q.no != nil:
		return nil, q.no
	case !goodMethod(q.method):
		return nil, malformed("the request's method is not a word in upper case")
	case q.method == http.MethodConnect || q.method == http.MethodTrace:
		return nil, denied("%s is not carried", q.method)
	case !x.isHost(q.host):
		return nil, misnamed("the request's host is not the destination's name")
	}
	if no := x.vetFields(q.header); no != nil {
		return nil, no
	}
	return x.locate(q.target)
}

// isHost reports whether a Host field or an authority is the destination: its name, with its port or without a port.
func (x *exchanger) isHost(s string) bool {
	if host, port, ok := strings.Cut(s, ":"); ok {
		return port == strconv.Itoa(int(x.conn.dst.Port())) && sameName(host, x.conn.to.name)
	}
	return sameName(s, x.conn.to.name)
}

// locate parses a request's target. It accepts only what can be sent on unchanged.
func (x *exchanger) locate(target string) (*url.URL, *refusal) {
	if !goodTarget(target) {
		return nil, malformed("the request's target contains characters that are not allowed in a URL")
	}
	if rest, ok := strings.CutPrefix(target, x.scheme+"://"); ok { // absolute-form, RFC 9112, section 3.2.2
		end := strings.IndexAny(rest, "/?")
		if end < 0 {
			end = len(rest)
		}
		if !x.isHost(rest[:end]) {
			return nil, misnamed("the host in the request's target is not the destination's name")
		}
		if target = rest[end:]; !strings.HasPrefix(target, "/") {
			target = "/" + target
		}
	}
	if !strings.HasPrefix(target, "/") {
		return nil, malformed("the request's target is not a path")
	}
	path, query, has := strings.Cut(target, "?")
	plain, err := url.PathUnescape(path)
	u := &url.URL{Scheme: x.scheme, Host: x.authority, Path: plain, RawPath: path, RawQuery: query, ForceQuery: has}
	if err != nil || u.RequestURI() != target {
		return nil, malformed("the request's path contains characters that must be percent-encoded")
	}
	return u, nil
}

// vetFields denies fields that change the meaning of the request, and those whose names some servers treat as names of
// fields that frame or route a request.
func (x *exchanger) vetFields(header http.Header) *refusal {
	for name, values := range header {
		plain := http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
		switch {
		case plain != name && slices.Contains(framingFields, plain):
			return malformed("a header field with an underscore that can be mistaken for %s", plain)
		case slices.Contains(hostFields, plain):
			for _, v := range values {
				if !x.isHost(v) {
					return misnamed("%s names another host than the destination's name", plain)
				}
			}
		case plain == "Forwarded" && strings.Contains(strings.ToLower(strings.Join(values, ",")), "host"):
			return misnamed("Forwarded names a host")
		}
	}
	if e := header["Expect"]; len(e) > 1 || len(e) == 1 && !strings.EqualFold(e[0], "100-continue") {
		return &refusal{http.StatusExpectationFailed, alertDecodeError, "only 100-continue can be expected"}
	}
	// A server may continue without the upgrade (RFC 9110, section 7.8), and clients rely on that for h2c.
	if u := header["Upgrade"]; len(u) > 1 || len(u) == 1 && !strings.EqualFold(u[0], "h2c") {
		return denied("a change of the protocol (Upgrade) inside of HTTP is not carried")
	}
	return nil
}

// Fields that determine how a request is framed or routed, or its kind. Their names are canonical.
var (
	framingFields = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Expect", "Te", "Trailer"}
	hostFields    = []string{"X-Forwarded-Host", "X-Forwarded-Server", "X-Original-Host", "X-Host", "X-Http-Host-Override"}
	hopFields     = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings",
		"Expect"} // the gateway itself sends 100 Continue, after the request is allowed
)

// endToEnd returns the end-to-end fields (RFC 9110, section 7.6.1).
func endToEnd(header http.Header) http.Header {
	out := header.Clone()
	for _, name := range options(header["Connection"]) {
		delete(out, http.CanonicalHeaderKey(name))
	}
	for _, name := range hopFields {
		delete(out, name)
	}
	return out
}
