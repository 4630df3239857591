package redteam

import (
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redteam/simnet"
)

// controls are the probes that must succeed.
type controls struct{ *catalogue }

// all adds the controls. If they fail, a blocked probe proves nothing: the policy might block all traffic, or the
// watchers might not work.
func (c controls) all() {
	page := func(id, title string, t *task) {
		c.control("control/"+id, title, t, allowedFlow, func(token string) check { return says(simnet.Hello, token) })
	}
	c.control("control/https", "fetch a page from an allowed host with curl",
		program("curl", "-sS", "--fail", "-m", "30", "--cacert", "ca.pem", "https://"+simnet.Allowed+"/"+c.token()),
		flowTo(simnet.Allowed), func(token string) check { return says(simnet.Hello, token) })
	page("http", "fetch a page without TLS", &task{Do: "talk", Name: simnet.Plain, Port: 80, Send: get(c.token(), simnet.Plain), Timeout: 10})
	name := "w" + c.token() + "." + simnet.Wild
	page("wildcard", "fetch a page below an allowed wildcard", &task{Do: "talk", Name: name, Port: 443, TLS: &tlsTask{SNI: name}, Send: get(c.token(), name), Timeout: 10})
	page("api", "make a request that a rule with http allows, with curl and the guest's own certificate store", program("curl", "-sS", "--fail", "-m", "30", "https://"+simnet.API+"/v1/"+c.token()))
	page("api-1.1", "make a request that a rule with http allows, over HTTP/1.1", program("curl", "-sS", "--fail", "--http1.1", "-m", "30", "https://"+simnet.API+"/v1/"+c.token()))
	page("api-post", "make a request with a body that a rule with http allows", program("curl", "-sS", "--fail", "-m", "30", "-d", "body", "https://"+simnet.API+"/v1/"+c.token()))
	page("public-name", "a name with a public address, in the zone of the rebinding names", c.publicName())
	c.control("control/git", "clone a repository from an allowed host",
		program("sh", "-c", "GIT_SSL_CAINFO=$PWD/ca.pem git clone -q https://"+simnet.Allowed+"/repo.git /tmp/repo && cat /tmp/repo/"+simnet.RepoFile),
		flowTo(simnet.Allowed), func(string) check { return says(strings.TrimSpace(simnet.RepoText)) })
	for _, v := range []Family{IPv4, IPv6} {
		for _, s := range []struct {
			proto string
			port  int
		}{{"tcp", 7000}, {"udp", 7001}} {
			c.control("control/direct-"+s.proto+"-"+v.short(), "exchange data over "+strings.ToUpper(s.proto)+" with a direct host",
				&task{Do: "talk", Name: simnet.Direct, Family: v.number(), Port: s.port, Proto: s.proto, Send: once(c.token()), Enough: c.token(), Timeout: 5},
				allowedFlow, func(token string) check { return says(token) })
			c.last().Family = v
		}
	}
	c.outsiders()
	for _, v := range []Family{IPv4, IPv6} {
		c.add(Probe{ID: "control/frame-" + v.short(), Family: v, Title: "an allowed frame from the guest's network card arrives", Bypass: Positive, Control: true,
			scene: kernel, frames: [][]byte{kernelProbes(c).good(v).frame()}, allowed: reaches})
	}
	c.add(Probe{ID: "control/frame-gateway", Family: IPv4, Title: "a connection to the synthetic address of an allowed name is accepted", Bypass: Positive, Control: true,
		scene: kernel, frames: [][]byte{ip{to: knownSynthetic}.tcp(40010, 443, tcpSYN, "").frame()}, allowed: reaches})
}

func (c controls) publicName() *task {
	name := "public-" + c.token() + "." + simnet.Rebind
	return &task{Do: "talk", Name: name, Port: 443, TLS: &tlsTask{SNI: name}, Send: get(c.token(), name), Timeout: 10}
}

// control adds a control. done returns the check of its response.
func (c controls) control(id, title string, t *task, proof evidence, done func(token string) check) {
	c.add(Probe{ID: id, Title: title, Bypass: Positive, Control: true, task: t, allowed: reaches, check: done(c.token()), proof: proof})
}

// says fails a response that lacks one of the words.
func says(words ...string) check {
	return func(r report) string {
		for _, w := range words {
			if !strings.Contains(string(r.Answer), w) {
				return "the response is not as expected: " + r.Stage + " " + r.Error
			}
		}
		return ""
	}
}

// allowedFlow: an enforcer reports that it allowed the flow.
func allowedFlow(b *about, r *audit.Record) bool {
	if r.HTTP != nil {
		return r.HTTP.Verdict == audit.Allow && b.hasToken(string(r.HTTP.Path))
	}
	return r.Flow != nil && r.Observer == audit.Host && r.Flow.State == audit.FlowOpen && r.Flow.Verdict == audit.Allow && b.mine(r.Flow)
}

// flowTo: an enforcer reports that it allowed a flow to a name.
func flowTo(name string) evidence {
	return func(_ *about, r *audit.Record) bool {
		return r.Flow != nil && r.Flow.State == audit.FlowOpen && r.Flow.Verdict == audit.Allow && string(r.Flow.Name) == name
	}
}

// outsiders adds probes that the suite itself sends from the host. The watchers must see them.
func (c controls) outsiders() {
	for _, v := range []Family{IPv4, IPv6} {
		for _, proto := range []string{"tcp", "udp"} {
			c.add(Probe{
				ID: "control/seen-" + proto + "-" + v.short(), Family: v, Title: "data that the suite itself sends to the attacker over " + strings.ToUpper(proto) + " is observed",
				Bypass: Positive, Control: true, scene: outside, task: c.talkTo(v, proto, c.victim(v), 443),
			})
		}
	}
	c.add(Probe{ID: "control/seen-name", Title: "a query that the suite itself sends for a name in the attacker's zone is observed", Bypass: Positive, Control: true, scene: outside,
		task: &task{Do: "talk", Host: simnet.Resolver4.Addr().String(), Family: 4, Port: 53, Proto: "udp", Send: []piece{{Data: question(c.token()+"."+simnet.Attacker, 1, false)}}}})
	c.last().targets = nil
	c.add(Probe{ID: "control/seen-host", Title: "a connection that the suite itself makes to a canary on the host is observed", Bypass: Positive, Control: true, scene: outside,
		task: c.talkTo(IPv4, "tcp", simnet.SiteLAN4, 22)})
}
