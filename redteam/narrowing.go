package redteam

import (
	"net/netip"

	"github.com/custody-project/custody/redteam/simnet"
)

// policyProbes are the probes of policies that change, and of invalid policies.
type policyProbes struct{ *catalogue }

// narrowing adds the probes of flows that are open when the policy is narrowed,
// or when Custody is killed.
func (c policyProbes) narrowing() {
	stays := func(s scene, id string, proof evidence, title string, bypass Bypass) {
		add := func(what string, v Family, t *task) {
			t.Do, t.Timeout = "stay", 60
			p := Probe{ID: id + what, Family: v, Title: title, Bypass: bypass, scene: s, task: t, allowed: reaches, proof: proof}
			c.add(p)
		}
		for _, v := range []Family{IPv4, IPv6} {
			add("direct-tcp-"+v.short(), v, &task{Name: simnet.Direct, Family: v.number(), Port: 7000, Echo: true, Send: once(c.token())})
			add("direct-udp-"+v.short(), v, &task{Name: simnet.Direct, Family: v.number(), Port: 7001, Proto: "udp", Echo: true, Send: once(c.token())})
		}
		name := "d" + c.token() + "." + simnet.Wild
		add("gateway-tls", "", &task{Name: name, Port: 443, TLS: &tlsTask{SNI: name}, Send: once("GET /drip?" + c.token() + " HTTP/1.1\r\nHost: " + name + "\r\n\r\n")})
		add("gateway-clear", "", &task{Name: simnet.Plain, Port: 80, Send: once("GET /drip?" + c.token() + " HTTP/1.1\r\nHost: " + simnet.Plain + "\r\n\r\n")})
		add("gateway-http", "", &task{Name: simnet.API, Port: 443, TLS: &tlsTask{SNI: simnet.API}, Send: once("GET /v1/drip?" + c.token() + " HTTP/1.1\r\nHost: " + simnet.API + "\r\n\r\n")})
	}
	stays(live, "live/", revoked, "an open flow whose rule is removed", Outliving)
	c.add(Probe{ID: "live/new-connection", Title: "a new connection to the synthetic address of a name whose rule was removed", Bypass: Outliving, scene: live, proof: denied, task: &task{
		Do: "after", After: "live/gateway-tls", Then: &task{Do: "talk", Same: true, Family: 4, Port: 443, Send: get(c.token(), simnet.Plain)},
	}})
	c.add(Probe{ID: "live/new-question", Title: "a query for a name whose rule was removed", Bypass: Outliving, scene: live, task: &task{
		Do: "after", After: "live/gateway-tls", Then: &task{Do: "talk", Name: "q" + c.token() + "." + simnet.Wild, Port: 443, Send: get(c.token(), simnet.Plain)},
	}})
	for _, v := range []Family{IPv4, IPv6} {
		t := c.talkTo(v, "tcp", v.of(simnet.Direct4, simnet.Direct6), 7000)
		c.add(Probe{ID: "live/pinned-address-" + v.short(), Family: v, Title: "the address of a direct name whose rule was removed", Bypass: Outliving, scene: live,
			targets: []target{{"", netip.AddrPortFrom(v.of(simnet.Direct4, simnet.Direct6), 7000)}}, task: &task{Do: "after", After: "live/direct-tcp-" + v.short(), Then: t}})
	}
	stays(crash, "crash/", interrupted, "an open flow when custody is killed with SIGKILL", FailOpen)
}

// configs adds the probes of invalid project files: custody must not run anything with them, nor ignore the invalid
// part.
func (c policyProbes) configs() {
	for _, f := range []struct{ id, title, text string }{
		{"empty", "an empty file", ""},
		{"blank", "a blank file", "\n\n   \n"},
		{"missing", "a missing file", missing},
		{"directory", "a directory", directory},
		{"not-yaml", "text that is not YAML", "egress: [\n  - }{"},
		{"list", "a list instead of a mapping", "- allow: " + simnet.Allowed + "\n"},
		{"unknown-key", "an unknown key", "version: 1\negres: []\n"},
		{"unknown-key-in-rule", "an unknown key in a rule", "version: 1\negress: [{allow: " + simnet.Allowed + ", port: [tcp/443]}]\n"},
		{"twice", "a duplicate key", "version: 1\negress: []\negress: [{allow: " + simnet.Allowed + "}]\n"},
		{"no-version", "a file without version", "egress: []\n"},
		{"allow-nothing", "a rule that allows nothing", "version: 1\negress: [{ports: [tcp/443]}]\n"},
		{"allow-empty", "a rule that allows an empty name", "version: 1\negress: [{allow: \"\"}]\n"},
		{"star", "a star for all names", "version: 1\negress: [{allow: \"*\"}]\n"},
		{"top-level", "a whole top-level domain", "version: 1\negress: [{allow: \"*.example\"}]\n"},
		{"star-inside", "a star inside a name", "version: 1\negress: [{allow: \"a*.site.example\"}]\n"},
		{"gateway-range", "a range of addresses through the gateway", "version: 1\negress: [{allow: 0.0.0.0/0}]\n"},
		{"own-range", "the sandbox's own addresses", "version: 1\negress: [{allow: 198.18.0.0/16, mode: direct}]\n"},
		{"number-as-name", "an address in another notation for a name", "version: 1\negress: [{allow: \"0x5db84242\"}]\n"},
		{"mode", "an unknown mode", "version: 1\negress: [{allow: " + simnet.Allowed + ", mode: open}]\n"},
		{"contradiction", "rules that contradict each other", "version: 1\negress: [{allow: a.example, mode: direct}, {allow: a.example}]\n"},
		{"second-document", "a second document after the first", "version: 1\n---\nversion: 1\negress: [{allow: " + simnet.Attacker + "}]\n"},
		{"bytes", "bytes that are not UTF-8", "version: 1\negress: [{allow: \"\xff\xfe\"}]\n"},
	} {
		c.add(Probe{ID: "config/" + f.id, Title: "run with " + f.title + " for a policy", Bypass: FailOpen, scene: refused, config: f.text})
	}
	for _, v := range []Family{IPv4, IPv6} {
		c.add(Probe{ID: "closed/address-" + v.short(), Family: v, Title: "an address, with a policy that has no rules", Bypass: FailOpen, scene: closed, task: c.talkTo(v, "tcp", c.victim(v), 443)})
		c.add(Probe{ID: "closed/udp-" + v.short(), Family: v, Title: "a datagram, with a policy that has no rules", Bypass: FailOpen, scene: closed, task: c.talkTo(v, "udp", c.victim(v), 443)})
	}
	name := c.token() + "." + simnet.Attacker
	c.add(Probe{ID: "closed/name", Title: "a name, with a policy that has no rules", Bypass: FailOpen, scene: closed, task: &task{Do: "talk", Name: name, Port: 443, Send: get(c.token(), name)}})
	c.add(Probe{ID: "closed/synthetic", Family: IPv4, Title: "a synthetic address, with a policy that has no rules", Bypass: FailOpen, scene: closed,
		task: c.talkTo(IPv4, "tcp", netip.MustParseAddr("198.18.1.0"), 443)})
	c.add(Probe{ID: "closed/gateway", Family: IPv4, Title: "the gateway's port, with a policy that has no rules", Bypass: FailOpen, scene: closed,
		task: c.talkTo(IPv4, "tcp", netip.MustParseAddr("198.18.0.1"), 443)})
}

// Special values in place of a project file's text.
const (
	missing   = "\x00missing"
	directory = "\x00directory"
)
