package simnet

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Rebinding returns the kinds of names below Rebind and RebindDirect, with the addresses that each resolves to.
func Rebinding() map[string][]netip.Addr {
	kinds := map[string]string{
		"public":      "93.184.10.20 2600:dead:10::20", // of Direct
		"private":     "10.66.0.2 192.168.1.1 172.16.0.1",
		"loopback":    "127.0.0.1 ::1",
		"linklocal":   "169.254.169.254 fe80::1",
		"cgnat":       "100.64.0.1",
		"ula":         "fd66::2 fd00:ec2::254",
		"nat64":       "64:ff9b::a9fe:a9fe 64:ff9b:1::a42:2",
		"mapped":      "::ffff:169.254.169.254 ::ffff:10.66.0.2",
		"compatible":  "::10.66.0.2",
		"sixtofour":   "2002:a42:2::1",
		"teredo":      "2001:0:a42:2::1",
		"unspecified": "0.0.0.0 ::",
		"multicast":   "224.0.0.251 ff02::fb",
		"broadcast":   "255.255.255.255",
		"benchmark":   "198.18.0.1 198.18.1.0",
		"guestlink":   "fdc5:7a1c:19d2::1",
		"host":        "93.184.1.2 2600:dead:1::2", // public, and the host's own
		"mixed":       "10.66.0.2 93.184.10.20 2600:dead:10::20 fd66::2",
	}
	all := map[string][]netip.Addr{}
	for kind, list := range kinds {
		for _, a := range strings.Fields(list) {
			all[kind] = append(all[kind], netip.MustParseAddr(a))
		}
	}
	for a := many4.Addr(); many4.Contains(a) && len(all["many"]) < 3000; a = a.Next() {
		all["many"] = append(all["many"], a)
	}
	return all
}

// zones answers queries for Zone and for the attacker's zone.
type zones struct {
	record    *log
	rebinding map[string][]netip.Addr

	mu   sync.Mutex     // guards turn
	turn map[string]int // number of queries so far for each name whose answer changes
}

func newZones(record *log) *zones {
	return &zones{record: record, rebinding: Rebinding(), turn: map[string]int{}}
}

// serveDNS starts the resolver: UDP, TCP and DoT, over IPv4 and IPv6.
func (n *Network) serveDNS() error {
	z := newZones(&n.log)
	var errs []error
	for _, at := range []netip.AddrPort{Resolver4, Resolver6} {
		dot := netip.AddrPortFrom(at.Addr(), 853)
		errs = append(errs, n.serveZones(z, n.spaces.world, at, "udp"), n.serveZones(z, n.spaces.world, at, "tcp"), n.serveZones(z, n.spaces.world, dot, "tcp-tls"))
	}
	return errors.Join(errs...)
}

// serveZones starts a name server for z.
func (n *Network) serveZones(z *zones, s *space, at netip.AddrPort, proto string) error {
	srv := &dns.Server{Net: proto, Handler: over{z, proto}}
	err := s.do(func() (err error) {
		if proto == "udp" {
			srv.PacketConn, err = net.ListenPacket("udp", at.String())
			return err
		}
		if srv.Listener, err = net.Listen("tcp", at.String()); err == nil && proto == "tcp-tls" {
			srv.Listener = tls.NewListener(srv.Listener, &tls.Config{Certificates: []tls.Certificate{n.ca.site}})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("resolver: %w", err)
	}
	started := make(chan struct{})
	srv.NotifyStartedFunc = func() { close(started) }
	n.services.work.Go(func() { srv.ActivateAndServe() }) // ends with an error of its socket when that is closed
	<-started
	n.services.own(closerFunc(srv.Shutdown))
	return nil
}

// over gives its handler the transport of each query.
type over struct {
	dns.Handler
	proto string
}

func (p over) ServeDNS(rw dns.ResponseWriter, q *dns.Msg) {
	p.Handler.ServeDNS(asked{rw, p.proto}, q)
}

type asked struct {
	dns.ResponseWriter
	proto string
}

// ServeDNS implements dns.Handler.
func (z *zones) ServeDNS(rw dns.ResponseWriter, q *dns.Msg) {
	if len(q.Question) != 1 {
		rw.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeFormatError))
		return
	}
	name, proto := z.log(rw, q)
	m := new(dns.Msg).SetReply(q)
	m.Authoritative, m.RecursionAvailable, m.Compress = true, true, true
	if !z.answer(m, name, q.Question[0]) {
		m.Rcode = dns.RcodeNameError
	}
	size := dns.MinMsgSize
	if opt := q.IsEdns0(); opt != nil {
		size = int(opt.UDPSize())
		m.SetEdns0(1232, false)
	}
	if proto == "udp" {
		m.Truncate(size)
	}
	rw.WriteMsg(m) // an error means that the client has gone
}

// log records the query; one for a name outside of Zone is also a sighting.
func (z *zones) log(rw dns.ResponseWriter, m *dns.Msg) (name, proto string) {
	q := m.Question[0]
	name = strings.TrimSuffix(strings.ToLower(q.Name), ".")
	if a, ok := rw.(asked); ok {
		proto = a.proto
	}
	src, _ := netip.ParseAddrPort(rw.RemoteAddr().String())
	dst, _ := netip.ParseAddrPort(rw.LocalAddr().String())
	add(z.record, &z.record.queries, Query{Time: time.Now(), Name: name, Type: dns.TypeToString[q.Qtype], Proto: proto, Src: src, Options: options(m)})
	if !dns.IsSubDomain(Zone+".", dns.CanonicalName(q.Name)) {
		z.record.note(Sighting{Where: AtResolver, Proto: "dns", Src: src, Dst: dst, Text: name + " " + dns.TypeToString[q.Qtype]})
	}
	return name, proto
}

// options lists the EDNS options of a question, as text.
func options(m *dns.Msg) []string {
	var list []string
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			list = append(list, fmt.Sprintf("%d: %s", o.Option(), o))
		}
	}
	return list
}

// answer fills in m and reports whether the name exists.
func (z *zones) answer(m *dns.Msg, name string, q dns.Question) bool {
	switch name {
	case Zone, Wild, Rebind, RebindDirect:
		return true
	}
	label, below, _ := strings.Cut(name, ".")
	if below == Rebind || below == RebindDirect {
		kind, _, _ := strings.Cut(label, "-")
		return z.rebind(m, name, kind, q)
	}
	host, known := hostOf(name)
	if known && host.Addrs[0] == Attacker4 {
		return evil(m, q)
	}
	return known && addresses(m, q, 60, host.Addrs...)
}

// rebind answers queries for names that resolve to forbidden addresses.
func (z *zones) rebind(m *dns.Msg, name, kind string, q dns.Question) bool {
	switch kind {
	case "flip": // public in the first answer, in the host's own network after that; TTL 0
		z.mu.Lock()
		key := name + " " + dns.TypeToString[q.Qtype]
		z.turn[key]++
		n := z.turn[key]
		z.mu.Unlock()
		if n == 1 {
			return addresses(m, q, 0, Direct4, Direct6)
		}
		return addresses(m, q, 0, SiteLAN4, SiteLAN6)
	case "cname": // into the attacker's zone, and from there to the host's own network
		to := "sink." + Attacker + "."
		m.Answer = append(m.Answer, &dns.CNAME{Hdr: header(q.Name, dns.TypeCNAME, 60), Target: to})
		q.Name = to
		return addresses(m, q, 60, SiteLAN4, Metadata4, SiteLAN6, Metadata6)
	case "ech":
		if q.Qtype == dns.TypeHTTPS || q.Qtype == dns.TypeSVCB {
			m.Answer = append(m.Answer, service(q))
			return true
		}
		return addresses(m, q, 60, Direct4, Direct6)
	}
	list, known := z.rebinding[kind]
	return known && addresses(m, q, 60, list...)
}

// service is an HTTPS or SVCB record that leads to the attacker, with an ECH configuration.
func service(q dns.Question) dns.RR {
	s := dns.SVCB{Hdr: header(q.Name, q.Qtype, 60), Priority: 1, Target: "sink." + Attacker + ".", Value: []dns.SVCBKeyValue{
		&dns.SVCBAlpn{Alpn: []string{"h2", "h3"}},
		&dns.SVCBIPv4Hint{Hint: []net.IP{Attacker4.AsSlice()}},
		&dns.SVCBECHConfig{ECH: []byte("\x00\x04\xfe\x0d\x00\x00")},
		&dns.SVCBIPv6Hint{Hint: []net.IP{Attacker6.AsSlice()}},
	}}
	if q.Qtype == dns.TypeSVCB {
		return &s
	}
	return &dns.HTTPS{SVCB: s}
}

// evil answers for the attacker's zone, queries of every type.
func evil(m *dns.Msg, q dns.Question) bool {
	switch q.Qtype {
	case dns.TypeTXT, dns.TypeANY:
		m.Answer = append(m.Answer, &dns.TXT{Hdr: header(q.Name, dns.TypeTXT, 0), Txt: []string{"orders from the attacker"}})
	case dns.TypeNULL:
		m.Answer = append(m.Answer, &dns.NULL{Hdr: header(q.Name, dns.TypeNULL, 0), Data: "orders from the attacker"})
	case dns.TypeHTTPS, dns.TypeSVCB:
		m.Answer = append(m.Answer, service(q))
	}
	return addresses(m, q, 0, Attacker4, Attacker6)
}

// addresses adds those of the list that are of the query's type.
func addresses(m *dns.Msg, q dns.Question, ttl uint32, list ...netip.Addr) bool {
	for _, a := range list {
		switch {
		case a.Is4() && slices.Contains([]uint16{dns.TypeA, dns.TypeANY}, q.Qtype):
			m.Answer = append(m.Answer, &dns.A{Hdr: header(q.Name, dns.TypeA, ttl), A: a.AsSlice()})
		case a.Is6() && slices.Contains([]uint16{dns.TypeAAAA, dns.TypeANY}, q.Qtype):
			m.Answer = append(m.Answer, &dns.AAAA{Hdr: header(q.Name, dns.TypeAAAA, ttl), AAAA: a.AsSlice()})
		}
	}
	return true
}

func header(name string, kind uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: ttl}
}
