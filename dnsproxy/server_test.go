package dnsproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/dnsproxy/upstream"
	"github.com/custody-project/custody/netpolicy"
)

// TestDecisions queries each kind of name for each type, over both transports, and compares the reply with the record.
func TestDecisions(t *testing.T) {
	z := newZone(t, records(t, map[string][]string{
		"db.direct.test. A":    {"db.direct.test. 60 IN A 93.184.216.34"},
		"db.direct.test. AAAA": {"db.direct.test. 60 IN AAAA 2606:2800::1"},
	}))
	s := newSite(t, Config{Upstream: z.client(t)},
		gatewayRule(t, "api.test"), gatewayRule(t, "*.wild.test"), directRule(t, "*.direct.test"))
	const ok, refused, missing = dns.RcodeSuccess, dns.RcodeRefused, dns.RcodeNameError
	const blocked, unsupported = dns.ExtendedErrorCodeBlocked, dns.ExtendedErrorCodeNotSupported
	for _, c := range []struct {
		name  string
		qtype uint16
		rcode int
		info  uint16
		addr  string
		asked int64
		rule  string
	}{
		{"api.test", dns.TypeA, ok, 0, "198.18.1.0", 0, "api.test tcp/443"},
		{"API.Test", dns.TypeA, ok, 0, "198.18.1.0", 0, "api.test tcp/443"},
		{"api.test", dns.TypeAAAA, ok, 0, "", 0, "api.test tcp/443"},
		{"api.test", dns.TypeHTTPS, ok, 0, "", 0, "api.test tcp/443"},
		{"api.test", dns.TypeSVCB, ok, 0, "", 0, "api.test tcp/443"},
		{"api.test", dns.TypeTXT, refused, unsupported, "", 0, "api.test tcp/443"},
		{"api.test", dns.TypeNULL, refused, unsupported, "", 0, "api.test tcp/443"},
		{"api.test", dns.TypeMX, refused, unsupported, "", 0, "api.test tcp/443"},
		{"api.test", dns.TypeANY, refused, unsupported, "", 0, "api.test tcp/443"},
		{"api.test", dns.TypeCNAME, refused, unsupported, "", 0, "api.test tcp/443"},
		{"api.test", dns.TypeAXFR, refused, unsupported, "", 0, "api.test tcp/443"},
		{"api.test", dns.TypeIXFR, refused, unsupported, "", 0, "api.test tcp/443"},
		{"api.test", 65280, refused, unsupported, "", 0, "api.test tcp/443"},
		{"x.wild.test", dns.TypeA, ok, 0, "198.18.1.1", 0, "*.wild.test tcp/443"},
		{"wild.test", dns.TypeA, refused, blocked, "", 0, "default"},
		{"db.direct.test", dns.TypeA, ok, 0, "93.184.216.34", 1, "*.direct.test tcp/443 direct"},
		{"db.direct.test", dns.TypeAAAA, ok, 0, "2606:2800::1", 1, "*.direct.test tcp/443 direct"},
		{"db.direct.test", dns.TypeHTTPS, ok, 0, "", 0, "*.direct.test tcp/443 direct"},
		{"db.direct.test", dns.TypeSVCB, ok, 0, "", 0, "*.direct.test tcp/443 direct"},
		{"db.direct.test", dns.TypeTXT, refused, unsupported, "", 0, "*.direct.test tcp/443 direct"},
		{"db.direct.test", dns.TypeSRV, refused, unsupported, "", 0, "*.direct.test tcp/443 direct"},
		{"nothing.direct.test", dns.TypeA, missing, 0, "", 1, "*.direct.test tcp/443 direct"},
		{"evil.test", dns.TypeA, refused, blocked, "", 0, "default"},
		{"evil.test", dns.TypeTXT, refused, blocked, "", 0, "default"},
		{"api.test.evil.test", dns.TypeA, refused, blocked, "", 0, "default"},
		{"apixtest", dns.TypeA, refused, blocked, "", 0, "default"},
		{".", dns.TypeNS, refused, blocked, "", 0, "default"},
		{"test", dns.TypeA, refused, blocked, "", 0, "default"},
		{`api\.test`, dns.TypeA, refused, blocked, "", 0, "default"},
		{`a\.b.wild.test`, dns.TypeA, refused, blocked, "", 0, "default"},
		{`a\000.wild.test`, dns.TypeA, refused, blocked, "", 0, "default"},
		{`a\ b.wild.test`, dns.TypeA, refused, blocked, "", 0, "default"},
		{`\255\254.direct.test`, dns.TypeA, refused, blocked, "", 0, "default"},
		{"-a.wild.test", dns.TypeA, refused, blocked, "", 0, "default"},
		{"*.wild.test", dns.TypeA, refused, blocked, "", 0, "default"},
		{"34.216.184.93.in-addr.arpa", dns.TypePTR, refused, blocked, "", 0, "default"},
	} {
		before := z.asked.Load()
		for i, network := range []string{"udp", "tcp"} {
			m := s.askOver(t, network, c.name, c.qtype)
			info, text := extended(m)
			if m.Rcode != c.rcode || info != c.info || m.Question[0].Name != dns.Fqdn(c.name) || !m.RecursionAvailable {
				t.Errorf("%s %s over %s: %s", c.name, dns.Type(c.qtype), network, m)
			}
			got := addrs(t, m)
			if c.addr == "" && len(got) > 0 || c.addr != "" && (len(got) != 1 || got[0].String() != c.addr) {
				t.Errorf("%s %s over %s: addresses %v, want %s", c.name, dns.Type(c.qtype), network, got, c.addr)
			}
			if i == 1 && (c.addr == "" && c.rcode == missing) {
				c.asked++ // no SOA: not cached
			}
			all := s.records(t)
			e := all[len(all)-1]
			d := e.DNS
			denied := c.rcode == refused
			if d == nil || d.RCode != dns.RcodeToString[c.rcode] || d.Rule != c.rule || (d.Verdict == audit.Deny) != denied || denied != (d.Reason != "") ||
				d.Type != dns.Type(c.qtype).String() || d.Proto != network || d.Generation != 1 || len(d.Answers) != len(got) || d.Synthetic != strings.HasPrefix(c.addr, "198.18.") {
				t.Errorf("%s %s over %s is recorded as %+v", c.name, dns.Type(c.qtype), network, d)
			}
			if want := fmt.Sprintf("rule %s, run %s, seq %d", c.rule, testRun, e.Seq); denied && text != want {
				t.Errorf("%s: extended error text %q, want %q", c.name, text, want)
			}
		}
		if got := z.asked.Load() - before; got != c.asked {
			t.Errorf("%s %s: upstream was asked %d times, want %d", c.name, dns.Type(c.qtype), got, c.asked)
		}
	}
	for _, o := range s.names.all() {
		if v := netpolicy.Decide(s.live.Current().Policy, netpolicy.Question{Name: o.name, Via: o.via}); !v.Allow || o.seq == 0 {
			t.Errorf("opened %+v", o)
		}
		if o.via == netpolicy.Direct && (o.until.Before(time.Now().Add(time.Minute)) || o.until.After(time.Now().Add(2*time.Minute))) || o.via == netpolicy.Gateway && !o.until.IsZero() {
			t.Errorf("opened until %s: %+v", o.until, o)
		}
	}
}

// TestNoPolicy: without a policy the server answers no query and sends none upstream.
func TestNoPolicy(t *testing.T) {
	s := newSite(t, Config{})
	s.live.Set(nil)
	if m := s.ask(t, "api.test", dns.TypeA); m.Rcode != dns.RcodeRefused {
		t.Errorf("%s", m)
	}
}

// TestAddresses: upstream answers with addresses that must not be passed on unchanged.
func TestAddresses(t *testing.T) {
	public := "93.184.216.34"
	thousand := make([]string, 0, 1000)
	for i := range 1000 {
		thousand = append(thousand, fmt.Sprintf("many.d.test. 60 IN A 93.184.%d.%d", i>>8, i&255))
	}
	lines := map[string][]string{
		"zero.d.test. A": {"zero.d.test. 0 IN A " + public}, "long.d.test. A": {"long.d.test. 999999 IN A " + public},
		"many.d.test. A":  thousand,
		"loop.d.test. A":  {"loop.d.test. 60 IN CNAME x.test.", "x.test. 60 IN CNAME loop.d.test."},
		"chain.d.test. A": {"chain.d.test. 60 IN CNAME evil.test.", "evil.test. 60 IN A 169.254.169.254"},
		"some.d.test. A":  {"some.d.test. 60 IN A 10.0.0.1", "some.d.test. 60 IN A " + public, "some.d.test. 60 IN A 192.168.1.1"},
		"named.p.test. A": {"named.p.test. 60 IN A 10.1.2.3", "named.p.test. 60 IN A 10.2.0.1"},
		"self.d.test. A":  {"self.d.test. 60 IN A 8.8.4.4"}, "self.p.test. A": {"self.p.test. 60 IN A 8.8.4.4"},
		"mapped.d.test. AAAA": {"mapped.d.test. 60 IN AAAA ::ffff:93.184.216.34"},
	}
	special := map[string]string{"metadata": "169.254.169.254", "loopback": "127.0.0.1", "cgnat": "100.64.0.1", "bench": "198.18.1.0", "bench2": "198.19.255.255", "zero": "0.0.0.0",
		"multicast": "224.0.0.1", "broadcast": "255.255.255.255", "private": "172.16.0.1", "doc": "192.0.2.1"}
	special6 := map[string]string{"loop6": "::1", "any6": "::", "nat64": "64:ff9b::a00:1", "nat64local": "64:ff9b:1::a00:1", "ula": "fd00::1", "link": "fe80::1", "six": "2002:a00:1::1",
		"teredo": "2001::1", "mapped10": "::ffff:10.0.0.1", "compat": "::10.0.0.1", "multi6": "ff02::1", "site": "fec0::1"}
	for name, a := range special {
		lines[name+".s.d.test. A"] = []string{name + ".s.d.test. 60 IN A " + a}
	}
	for name, a := range special6 {
		lines[name+".s.d.test. AAAA"] = []string{name + ".s.d.test. 60 IN AAAA " + a}
	}
	z := newZone(t, records(t, lines))
	self := func(a netip.Addr) bool { return a.String() == "8.8.4.4" }
	s := newSite(t, Config{Upstream: z.client(t), Self: self}, directRule(t, "*.d.test"), directRule(t, "*.p.test", "10.1.0.0/16", "8.8.4.4/32"))
	opened := 0
	check := func(name string, qtype uint16, rcode, n, dropped int, ttl uint32) *audit.DNS {
		t.Helper()
		m := s.ask(t, name, qtype)
		d := s.lastDNS(t)
		if got := addrs(t, m); m.Rcode != rcode || len(got) != n || len(d.Answers) != n || len(d.Dropped) != dropped || n > 0 && m.Answer[0].Header().Ttl != ttl || d.Reason == "" != (rcode == 0) {
			t.Errorf("%s %s: %s\nin the record: %+v", name, dns.Type(qtype), m, d)
		}
		opened += n
		if got := len(s.names.all()); got != opened {
			t.Errorf("%s: %d addresses opened, want %d", name, got, opened)
		}
		return &d
	}
	for name := range special {
		check(name+".s.d.test", dns.TypeA, dns.RcodeRefused, 0, 1, 0)
	}
	for name := range special6 {
		check(name+".s.d.test", dns.TypeAAAA, dns.RcodeRefused, 0, 1, 0)
	}
	check("mapped.d.test", dns.TypeAAAA, dns.RcodeRefused, 0, 1, 0)
	check("zero.d.test", dns.TypeA, 0, 1, 0, 10)
	check("long.d.test", dns.TypeA, 0, 1, 0, 300)
	if d := check("many.d.test", dns.TypeA, 0, 32, 1, 60); d.Dropped[0] != "and 968 more" {
		t.Errorf("dropped %v", d.Dropped)
	}
	check("loop.d.test", dns.TypeA, dns.RcodeServerFailure, 0, 0, 0)
	if d := check("chain.d.test", dns.TypeA, dns.RcodeRefused, 0, 1, 0); len(d.Chain) != 1 || d.Chain[0] != "evil.test" {
		t.Errorf("chain %v", d.Chain)
	}
	check("some.d.test", dns.TypeA, 0, 1, 2, 60)
	if d := check("named.p.test", dns.TypeA, 0, 1, 1, 60); d.Answers[0] != "10.1.2.3" {
		t.Errorf("answers %v", d.Answers)
	}
	check("self.d.test", dns.TypeA, dns.RcodeRefused, 0, 1, 0)
	check("self.p.test", dns.TypeA, 0, 1, 0, 60)
}

// TestRebinding: upstream answers first with a public address, and then with others.
func TestRebinding(t *testing.T) {
	turns := []string{"93.184.216.34", "169.254.169.254", "93.184.216.35", "10.0.0.1"}
	turn := 0
	z := newZone(t, func(w dns.ResponseWriter, r *dns.Msg) {
		rr, _ := dns.NewRR(r.Question[0].Name + " 0 IN A " + turns[turn])
		turn++
		w.WriteMsg(&dns.Msg{MsgHdr: dns.MsgHdr{Id: r.Id, Response: true}, Question: r.Question, Answer: []dns.RR{rr}})
	})
	s := newSite(t, Config{Upstream: z.client(t)}, directRule(t, "a.test"))
	for i := range turns {
		m := s.ask(t, "a.test", dns.TypeA)
		if got := len(addrs(t, m)); got != 1-i%2 {
			t.Errorf("turn %d: %s", i, m)
		}
	}
	if len(s.names.all()) != 2 {
		t.Errorf("opened %+v", s.names.all())
	}
}

// TestUpstreamFails: when upstream fails, the error is clear, and the record names the server that failed.
func TestUpstreamFails(t *testing.T) {
	silent := newZone(t, func(dns.ResponseWriter, *dns.Msg) {})
	failing := newZone(t, func(w dns.ResponseWriter, r *dns.Msg) { w.WriteMsg(new(dns.Msg).SetRcode(r, dns.RcodeServerFailure)) })
	for name, z := range map[string]*zone{"silent": silent, "failing": failing} {
		c := upstream.New([]upstream.Server{{Proto: upstream.UDP, Addr: z.addr}}, upstream.Options{Attempt: 50 * time.Millisecond})
		s := newSite(t, Config{Upstream: c}, directRule(t, "a.test"))
		m := s.ask(t, "a.test", dns.TypeA)
		info, text := extended(m)
		d := s.lastDNS(t)
		if m.Rcode != dns.RcodeServerFailure || info != dns.ExtendedErrorCodeNetworkError || !strings.Contains(text, testRun) || !strings.HasPrefix(d.Reason, reasonUpstream) || d.Verdict != audit.Allow {
			t.Errorf("%s: %s, %+v", name, m, d)
		}
	}
}

// TestDurableFirst: the record is on the disk before a path is opened.
func TestDurableFirst(t *testing.T) {
	z := newZone(t, records(t, map[string][]string{"b.test. A": {"b.test. 60 IN A 93.184.216.34"}}))
	s := newSite(t, Config{Upstream: z.client(t)}, gatewayRule(t, "a.test"), directRule(t, "b.test"))
	seen := 0
	s.names.mu.Lock()
	s.names.onOpen = func(o opened) {
		for _, r := range s.records(t) {
			if r.Seq == o.seq && r.DNS != nil && string(r.DNS.Name) == o.name && slices.Contains(r.DNS.Answers, o.addr.String()) {
				seen++
				return
			}
		}
		t.Errorf("%+v was opened before its record was on the disk", o)
	}
	s.names.mu.Unlock()
	s.ask(t, "a.test", dns.TypeA)
	s.ask(t, "b.test", dns.TypeA)
	if s.names.all(); seen != 2 {
		t.Errorf("%d were opened", seen)
	}
}

// TestStall: while the disk is full, no answer is sent and no path is opened.
func TestStall(t *testing.T) {
	s := newSite(t, Config{}, gatewayRule(t, "a.test"))
	s.ask(t, "a.test", dns.TypeA)
	s.disk.full.Store(true)
	answered := make(chan error, 2)
	for _, network := range []string{"udp", "tcp"} {
		go func() {
			var m dns.Msg
			m.SetQuestion("a.test.", dns.TypeA)
			_, err := s.exchange(network, &m)
			answered <- err
		}()
	}
	select {
	case err := <-answered:
		t.Errorf("an answer, or %v, while the record is stalled", err)
	case <-time.After(300 * time.Millisecond):
	}
	if n := len(s.names.all()); n != 1 {
		t.Errorf("%d were opened", n)
	}
	s.disk.full.Store(false)
	for range 2 {
		check(t, <-answered)
	}
	if n := len(s.names.all()); n != 3 {
		t.Errorf("%d were opened", n)
	}
}

// TestStop ends the server while the record is stalled.
func TestStop(t *testing.T) {
	s := newSite(t, Config{}, gatewayRule(t, "a.test"))
	s.disk.full.Store(true)
	for range 10 {
		c, err := net.Dial("tcp", s.addr)
		check(t, err)
		defer c.Close()
		c.Write(framed(template(t, "a.test")))
	}
	for s.Stats().Questions < 10 {
		time.Sleep(time.Millisecond)
	}
	check(t, s.stop())
	if st := s.Stats(); st.Unrecorded != 10 || len(s.names.all()) > 0 {
		t.Errorf("%+v", st)
	}
}

// TestNoRecord: when the record is closed, there are no answers and no findings.
func TestNoRecord(t *testing.T) {
	s := newSite(t, Config{Recorder: closedRecorder{}}, gatewayRule(t, "a.test"))
	for _, name := range []string{"a.test", "evil.test"} {
		var m dns.Msg
		m.SetQuestion(dns.Fqdn(name), dns.TypeA)
		_, _, err := (&dns.Client{Timeout: 100 * time.Millisecond}).Exchange(&m, s.addr)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if st := s.Stats(); st.Unrecorded != 2 || len(s.names.all()) > 0 {
		t.Errorf("%+v", st)
	}
}

// closedRecorder is the recorder of a run that has ended.
type closedRecorder struct{}

func (closedRecorder) Post(context.Context, audit.Event) (uint64, error) { return 0, wal.ErrClosed }
func (closedRecorder) Sync(context.Context, uint64) error                { return wal.ErrClosed }

// revoking is a table that changes the policy in Synthetic, that is, between the decision and the answer.
type revoking struct {
	*table
	next *netpolicy.Policy
}

func (r *revoking) Synthetic(name string) (netip.Addr, error) {
	r.table.live.Set(r.next)
	return r.table.Synthetic(name)
}

// TestPolicyChange: the policy changes after the decision on a query.
func TestPolicyChange(t *testing.T) {
	for name, c := range map[string]struct {
		next  []netpolicy.Rule
		rcode int
	}{
		"revoked":       {nil, dns.RcodeRefused},
		"still allowed": {[]netpolicy.Rule{gatewayRule(t, "a.test"), gatewayRule(t, "b.test")}, dns.RcodeSuccess},
		"now direct":    {[]netpolicy.Rule{directRule(t, "a.test")}, dns.RcodeRefused},
	} {
		names := &revoking{table: newTable(), next: policy(t, c.next...)}
		s := newSite(t, Config{Names: names}, gatewayRule(t, "a.test"))
		m := s.ask(t, "a.test", dns.TypeA)
		d := s.lastDNS(t)
		if m.Rcode != c.rcode || len(names.all()) != len(m.Answer) || d.RCode != dns.RcodeToString[c.rcode] || c.rcode != 0 && (d.Generation != 2 || d.Reason != reasonChanged) {
			t.Errorf("%s: %s, %+v", name, m, d)
		}
	}
}

// TestTableFails: a name whose path cannot be opened is not answered.
func TestTableFails(t *testing.T) {
	names := newTable()
	names.fail = errors.New("the map is full")
	s := newSite(t, Config{Names: names}, gatewayRule(t, "*.a.test"))
	m := s.ask(t, "x.a.test", dns.TypeA)
	if d := s.lastDNS(t); m.Rcode != dns.RcodeServerFailure || len(m.Answer) > 0 || d.RCode != "SERVFAIL" || d.Reason != reasonOpen+"the map is full" || len(d.Answers) > 0 {
		t.Errorf("%s, %+v", m, d)
	}
	names.mu.Lock()
	names.fail = nil
	for i := range 1 << 15 {
		names.byName[fmt.Sprint(i)] = netip.Addr{}
	}
	names.mu.Unlock()
	m = s.ask(t, "y.a.test", dns.TypeA)
	if d := s.lastDNS(t); m.Rcode != dns.RcodeServerFailure || !strings.HasPrefix(d.Reason, reasonNames) {
		t.Errorf("%s, %+v", m, d)
	}
}

// TestOverload: while the only worker waits for a silent server, other queries are answered immediately.
func TestOverload(t *testing.T) {
	release := make(chan struct{})
	z := newZone(t, func(w dns.ResponseWriter, r *dns.Msg) {
		<-release
		w.WriteMsg(new(dns.Msg).SetReply(r))
	})
	c := upstream.New([]upstream.Server{{Proto: upstream.UDP, Addr: z.addr}}, upstream.Options{Attempt: 20 * time.Second, Total: 20 * time.Second})
	s := newSite(t, Config{Upstream: c, Workers: 1, Queue: 2}, directRule(t, "*.a.test"), gatewayRule(t, "g.test"))
	conn, err := net.Dial("udp", s.addr)
	check(t, err)
	defer conn.Close()
	const n = 20
	for i := range n {
		conn.Write(template(t, fmt.Sprintf("n%02d.a.test", i)))
	}
	buf := make([]byte, 4096)
	for range n - 3 {
		k, err := conn.Read(buf)
		check(t, err)
		if k < headerSize || buf[3]&0xf != dns.RcodeServerFailure {
			t.Errorf("reply % x", buf[:k])
		}
	}
	if m := s.ask(t, "g.test", dns.TypeA); len(m.Answer) != 1 {
		t.Errorf("a gateway name waits for direct ones: %s", m)
	}
	if got := s.Stats().Overloaded; got != n-3 {
		t.Errorf("%d queries were refused as overload, want %d", got, n-3)
	}
	close(release)
	for range 3 {
		_, err := conn.Read(buf)
		check(t, err)
	}
}
