package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// short has timeouts for servers that fail, for which the test must wait.
var short = Options{Attempt: 300 * time.Millisecond, Total: 3 * time.Second}

func TestResolve(t *testing.T) {
	soa := "test. 30 IN SOA ns.test. root.test. 1 2 3 4 20"
	for name, c := range map[string]struct {
		answer, ns []string
		rcode      int
		qtype      uint16
		addrs      string // comma-separated
		chain      string
		ttl        time.Duration
		err        error
	}{
		"one":             {answer: []string{"a.test. 60 IN A 192.0.2.1"}, addrs: "192.0.2.1", ttl: time.Minute},
		"capitals":        {answer: []string{"A.tESt. 60 IN A 192.0.2.1"}, addrs: "192.0.2.1", ttl: time.Minute},
		"smallest ttl":    {answer: []string{"a.test. 60 IN A 192.0.2.1", "a.test. 7 IN A 192.0.2.2"}, addrs: "192.0.2.1 192.0.2.2", ttl: 7 * time.Second},
		"twice the same":  {answer: []string{"a.test. 60 IN A 192.0.2.1", "a.test. 60 IN A 192.0.2.1"}, addrs: "192.0.2.1", ttl: time.Minute},
		"capped ttl":      {answer: []string{"a.test. 99999 IN A 192.0.2.1"}, addrs: "192.0.2.1", ttl: 5 * time.Minute},
		"ttl is negative": {answer: []string{"a.test. 4294967295 IN A 192.0.2.1"}, addrs: "192.0.2.1"},
		"aaaa":            {qtype: dns.TypeAAAA, answer: []string{"a.test. 60 IN AAAA 2001:db8::1", "a.test. 60 IN A 192.0.2.1"}, addrs: "2001:db8::1", ttl: time.Minute},
		"chain":           {answer: []string{"a.test. 9 IN CNAME b.test.", "b.test. 60 IN CNAME C.test.", "c.test. 60 IN A 192.0.2.3"}, addrs: "192.0.2.3", chain: "b.test c.test", ttl: 9 * time.Second},
		"chain, any order": {answer: []string{"c.test. 60 IN A 192.0.2.3", "b.test. 60 IN CNAME c.test.", "a.test. 9 IN CNAME b.test."},
			addrs: "192.0.2.3", chain: "b.test c.test", ttl: 9 * time.Second},
		"others' records": {answer: []string{"evil.test. 60 IN A 192.0.2.66", "a.test. 60 IN A 192.0.2.1", "sub.a.test. 60 IN A 192.0.2.67", "a.test. 60 CH A 192.0.2.68", "a.test. 60 IN TXT \"x\""},
			addrs: "192.0.2.1", ttl: time.Minute},
		"only others' records": {answer: []string{"evil.test. 60 IN A 192.0.2.66"}},
		"two cnames":           {answer: []string{"a.test. 60 IN CNAME b.test.", "a.test. 60 IN CNAME evil.test.", "b.test. 60 IN A 192.0.2.1", "evil.test. 60 IN A 192.0.2.66"}, addrs: "192.0.2.1", chain: "b.test", ttl: time.Minute},
		"loop":                 {answer: []string{"a.test. 60 IN CNAME b.test.", "b.test. 60 IN CNAME a.test."}, err: ErrChain},
		"loop to itself":       {answer: []string{"a.test. 60 IN CNAME a.test."}, err: ErrChain},
		"loop behind":          {answer: []string{"a.test. 60 IN CNAME b.test.", "b.test. 60 IN CNAME c.test.", "c.test. 60 IN CNAME b.test."}, err: ErrChain},
		"long chain":           {answer: long(9), err: ErrChain},
		"just long enough":     {answer: long(8), addrs: "192.0.2.9", chain: "n1.test n2.test n3.test n4.test n5.test n6.test n7.test n8.test", ttl: time.Minute},
		"no data":              {ns: []string{soa}, ttl: 20 * time.Second},
		"no such name":         {ns: []string{soa}, rcode: dns.RcodeNameError, ttl: 20 * time.Second},
		"no such name, no soa": {rcode: dns.RcodeNameError},
		"chain to no data":     {answer: []string{"a.test. 60 IN CNAME b.test."}, ns: []string{soa}, chain: "b.test", ttl: 20 * time.Second},
		"server failure":       {rcode: dns.RcodeServerFailure},
		"refused":              {rcode: dns.RcodeRefused},
	} {
		t.Run(name, func(t *testing.T) {
			z := serve(t, func(w dns.ResponseWriter, r *dns.Msg) {
				m := new(dns.Msg)
				m.SetRcode(r, c.rcode)
				m.Answer, m.Ns = rrs(t, c.answer...), rrs(t, c.ns...)
				w.WriteMsg(m)
			})
			a, err := client(t, Options{}, z.server(UDP)).Resolve(t.Context(), "A.test.", max(c.qtype, dns.TypeA))
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if got := strings.Join(texts(a.Addrs), " "); got != c.addrs {
				t.Errorf("addresses %s, want %s", got, c.addrs)
			}
			if got := strings.Join(a.Chain, " "); got != c.chain {
				t.Errorf("chain %s, want %s", got, c.chain)
			}
			if err == nil && (a.TTL != c.ttl || a.RCode != c.rcode || a.Cached || a.Server != z.server(UDP).String() || a.Latency <= 0) {
				t.Errorf("%+v, want ttl %s and rcode %d", a, c.ttl, c.rcode)
			}
		})
	}
}

// long returns a chain of n CNAMEs that ends in an address.
func long(n int) (out []string) {
	owner := "a.test."
	for i := range n {
		next := fmt.Sprintf("n%d.test.", i+1)
		out = append(out, owner+" 60 IN CNAME "+next)
		owner = next
	}
	return append(out, owner+" 60 IN A 192.0.2.9")
}

// TestChase: servers send one CNAME at a time, as authoritative servers do.
func TestChase(t *testing.T) {
	for links, want := range map[int]error{3: nil, MaxChain: nil, MaxChain + 1: ErrChain, 50: ErrChain} {
		answers := map[string]string{}
		for _, line := range long(links) {
			answers[strings.Fields(line)[0]] = line
		}
		z := serve(t, func(w dns.ResponseWriter, r *dns.Msg) {
			says(rrs(t, answers[dns.CanonicalName(r.Question[0].Name)])...)(w, r)
		})
		a, err := client(t, Options{}, z.server(UDP)).Resolve(t.Context(), "a.test", dns.TypeA)
		if !errors.Is(err, want) || want == nil && (len(a.Chain) != links || len(a.Addrs) != 1) {
			t.Errorf("%d CNAMEs: %+v, %v", links, a, err)
		}
		if n := z.udp.Load(); n > MaxChain+2 {
			t.Errorf("%d CNAMEs: %d questions", links, n)
		}
	}
	odd := serve(t, func(w dns.ResponseWriter, r *dns.Msg) {
		if r.Question[0].Name == `a\000\.b.test.` {
			says(rrs(t, `a\000\.b.test. 60 IN A 192.0.2.1`)...)(w, r)
			return
		}
		says(rrs(t, r.Question[0].Name+` 60 IN CNAME a\000\.b.test.`)...)(w, r)
	})
	if a, err := client(t, Options{}, odd.server(TCP)).Resolve(t.Context(), "a.test", dns.TypeA); err != nil || len(a.Addrs) != 1 {
		t.Errorf("a chain over an odd name: %+v, %v", a, err)
	}
	loop := serve(t, func(w dns.ResponseWriter, r *dns.Msg) {
		next := map[string]string{"a.test.": "b.test.", "b.test.": "a.test."}[dns.CanonicalName(r.Question[0].Name)]
		says(rrs(t, r.Question[0].Name+" 60 IN CNAME "+next)...)(w, r)
	})
	if _, err := client(t, Options{}, loop.server(UDP)).Resolve(t.Context(), "a.test", dns.TypeA); !errors.Is(err, ErrChain) {
		t.Errorf("loop over two questions: %v", err)
	}
}

// TestQuery: a query has a random id, random capitals, one question, and EDNS with a size and no option.
func TestQuery(t *testing.T) {
	var mu sync.Mutex
	names, ids, ports := map[string]bool{}, map[uint16]bool{}, map[string]bool{}
	z := serve(t, func(w dns.ResponseWriter, r *dns.Msg) {
		mu.Lock()
		names[r.Question[0].Name], ids[r.Id], ports[w.RemoteAddr().String()] = true, true, true
		mu.Unlock()
		opt := r.IsEdns0()
		if opt == nil || len(opt.Option) > 0 || opt.UDPSize() != ednsSize || opt.Do() || len(r.Extra) != 1 || len(r.Question) != 1 || !r.RecursionDesired {
			t.Errorf("query %s", r)
		}
		says(rrs(t, r.Question[0].Name+" 0 IN A 192.0.2.1")...)(w, r)
	})
	c := client(t, Options{}, z.server(UDP))
	const n = 3 * socketUses
	for range n {
		_, err := c.Resolve(t.Context(), "a-rather-long-name-of-many-letters.example.test", dns.TypeA)
		check(t, err)
	}
	if len(names) < n-1 || len(ids) < n-2 || len(ports) < 3 {
		t.Errorf("%d questions had %d spellings, %d ids, %d ports", n, len(names), len(ids), len(ports))
	}
}

func TestRefusedQuestions(t *testing.T) {
	z := serve(t, says())
	c := client(t, Options{}, z.server(UDP))
	for _, qtype := range []uint16{dns.TypeTXT, dns.TypeANY, dns.TypeHTTPS, dns.TypeAXFR, dns.TypeNULL, 0} {
		if _, err := c.Resolve(t.Context(), "a.test", qtype); !errors.Is(err, ErrQuestion) {
			t.Errorf("type %d: %v", qtype, err)
		}
	}
	for _, name := range []string{"", ".", "a..test", ".test", strings.Repeat("a", 64) + ".test", strings.Repeat("abc.", 64) + "test", "a b.test", `a\.b.test`, "a/b"} {
		if _, err := c.Resolve(t.Context(), name, dns.TypeA); !errors.Is(err, ErrQuestion) {
			t.Errorf("name %q: %v", name, err)
		}
	}
	if z.udp.Load() > 0 {
		t.Errorf("%d of these were sent", z.udp.Load())
	}
	if _, err := client(t, Options{}).Resolve(t.Context(), "a.test", dns.TypeA); err == nil {
		t.Error("an answer without a server")
	}
}

// TestForged: the first packets of the servers are not the answer.
func TestForged(t *testing.T) {
	good, bad := "a.test. 60 IN A 192.0.2.1", "a.test. 60 IN A 192.0.2.66"
	for name, forge := range map[string]func(m *dns.Msg){
		"id":            func(m *dns.Msg) { m.Id++ },
		"name":          func(m *dns.Msg) { m.Question[0].Name = "b.test." },
		"type":          func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA },
		"class":         func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS },
		"a query":       func(m *dns.Msg) { m.Response = false },
		"an update":     func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate },
		"no question":   func(m *dns.Msg) { m.Question = nil },
		"two questions": func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) },
	} {
		t.Run(name, func(t *testing.T) {
			z := start(t, func(w dns.ResponseWriter, r *dns.Msg) {
				m := new(dns.Msg)
				m.SetReply(r)
				m.Answer = rrs(t, bad)
				forge(m)
				for range maxForeign - 1 {
					w.WriteMsg(m)
				}
				w.Write([]byte{1, 2, 3})
				says(rrs(t, good)...)(w, r)
			}, nil, nil)
			a, err := client(t, short, z.server(UDP)).Resolve(t.Context(), "a.test", dns.TypeA)
			if err != nil || a.Addrs[0].String() != "192.0.2.1" || z.udp.Load() != 1 {
				t.Errorf("%+v, %v, asked %d times", a, err, z.udp.Load())
			}
		})
	}
}

// TestSpoofedSource sends a correct answer with a wrong address from another port: the kernel drops it.
func TestSpoofedSource(t *testing.T) {
	z := start(t, func(w dns.ResponseWriter, r *dns.Msg) {
		other, err := net.Dial("udp", w.RemoteAddr().String())
		check(t, err)
		defer other.Close()
		m := new(dns.Msg)
		m.SetReply(r)
		m.Answer = rrs(t, "a.test. 60 IN A 192.0.2.66")
		b, err := m.Pack()
		check(t, err)
		for range 50 {
			other.Write(b)
		}
		says(rrs(t, "a.test. 60 IN A 192.0.2.1")...)(w, r)
	}, nil, nil)
	a, err := client(t, Options{}, z.server(UDP)).Resolve(t.Context(), "a.test", dns.TypeA)
	check(t, err)
	if a.Addrs[0].String() != "192.0.2.1" {
		t.Errorf("%+v", a)
	}
}

// TestGuessing floods the client with wrong ids, so that it switches to TCP.
func TestGuessing(t *testing.T) {
	z := start(t, func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(r)
		m.Answer = rrs(t, "a.test. 60 IN A 192.0.2.66")
		for range 10 * maxForeign {
			m.Id++
			w.WriteMsg(m)
		}
	}, says(rrs(t, "a.test. 60 IN A 192.0.2.1")...), nil)
	a, err := client(t, Options{}, z.server(UDP)).Resolve(t.Context(), "a.test", dns.TypeA)
	check(t, err)
	if a.Addrs[0].String() != "192.0.2.1" || z.tcp.Load() != 1 {
		t.Errorf("%+v after %d questions over TCP", a, z.tcp.Load())
	}
}

// TestFolding: servers answer in lower case.
func TestFolding(t *testing.T) {
	fold := func(w dns.ResponseWriter, r *dns.Msg) {
		r.Question[0].Name = strings.ToLower(r.Question[0].Name)
		says(rrs(t, r.Question[0].Name+" 0 IN A 192.0.2.1")...)(w, r)
	}
	const name = "many-letters-so-that-one-is-a-capital.test"
	z := serve(t, fold)
	c := client(t, Options{}, z.server(UDP))
	for range 5 {
		_, err := c.Resolve(t.Context(), name, dns.TypeA)
		check(t, err)
	}
	if z.udp.Load() != 1 || z.tcp.Load() != 5 || z.conns.Load() != 1 {
		t.Errorf("%d questions over UDP, %d over TCP on %d connections", z.udp.Load(), z.tcp.Load(), z.conns.Load())
	}
	noTCP := start(t, fold, nil, nil)
	c = client(t, Options{}, noTCP.server(UDP))
	for range 2 {
		if _, err := c.Resolve(t.Context(), name, dns.TypeA); err != nil {
			t.Errorf("a server that folds and has no TCP: %v", err)
		}
	}
}

// TestTruncation: a server has more addresses than fit into a UDP packet.
func TestTruncation(t *testing.T) {
	var many []string
	for i := range 3000 {
		many = append(many, fmt.Sprintf("a.test. 60 IN A 93.184.%d.%d", i>>8, i&255))
	}
	z := start(t, func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(r)
		m.Truncated = true
		m.Answer = rrs(t, "a.test. 60 IN A 192.0.2.66")
		w.WriteMsg(m)
	}, says(rrs(t, many...)...), nil)
	c := client(t, Options{}, z.server(UDP))
	a, err := c.Resolve(t.Context(), "a.test", dns.TypeA)
	check(t, err)
	if len(a.Addrs) != MaxAddrs || a.Omitted != 3000-MaxAddrs || slices.Contains(a.Addrs, netip.MustParseAddr("192.0.2.66")) {
		t.Errorf("%d addresses, %d omitted", len(a.Addrs), a.Omitted)
	}
	alone := start(t, func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(r)
		m.Truncated = true
		w.WriteMsg(m)
	}, nil, nil)
	if a, err := client(t, short, alone.server(UDP)).Resolve(t.Context(), "a.test", dns.TypeA); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("truncated, no TCP: %+v, %v", a, err)
	}
}

// TestFailover: the first server is dead, silent, failing or malicious. The second answers, and after two failures the
// first is queried last.
func TestFailover(t *testing.T) {
	silent := func(dns.ResponseWriter, *dns.Msg) {}
	for name, first := range map[string]func() *zone{
		"dead":     func() *zone { return start(t, nil, nil, nil) },
		"silent":   func() *zone { return start(t, silent, silent, nil) },
		"failing":  func() *zone { return serve(t, code(dns.RcodeServerFailure)) },
		"refusing": func() *zone { return serve(t, code(dns.RcodeRefused)) },
		"garbage": func() *zone {
			return serve(t, func(w dns.ResponseWriter, r *dns.Msg) {
				b, _ := new(dns.Msg).SetReply(r).Pack()
				b[7] = 200 // 200 answers announced, none sent
				w.Write(b)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := first(), serve(t, says(rrs(t, "a.test. 0 IN A 192.0.2.2")...))
			c := client(t, short, a.server(UDP), b.server(UDP))
			for range 4 {
				ans, err := c.Resolve(t.Context(), "a.test", dns.TypeA)
				check(t, err)
				if ans.Server != b.server(UDP).String() {
					t.Errorf("%s answered", ans.Server)
				}
			}
			if name == "silent" && a.udp.Load() != 2 {
				t.Errorf("the silent server was asked %d times", a.udp.Load())
			}
		})
	}
}

func TestAllDead(t *testing.T) {
	a, b := start(t, nil, nil, nil), start(t, func(dns.ResponseWriter, *dns.Msg) {}, nil, nil)
	c := client(t, Options{Attempt: 50 * time.Millisecond, Total: 10 * time.Second}, a.server(UDP), b.server(UDP))
	_, err := c.Resolve(t.Context(), "a.test", dns.TypeA)
	if !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), a.server(UDP).String()) || !strings.Contains(err.Error(), b.server(UDP).String()) || len(err.Error()) > 600 {
		t.Errorf("the error does not name the server that failed: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Resolve(ctx, "b.test", dns.TypeA); err == nil {
		t.Error("an answer, although no server sent one")
	}
}

// TestTotal: slow servers do not exceed the total timeout.
func TestTotal(t *testing.T) {
	var servers []Server
	for range 4 {
		servers = append(servers, start(t, func(dns.ResponseWriter, *dns.Msg) {}, nil, nil).server(UDP))
	}
	c := client(t, Options{Attempt: time.Hour, Total: 100 * time.Millisecond}, servers...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.Resolve(ctx, "a.test", dns.TypeA); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		t.Errorf("%v", err)
	}
}

// TestSharing: many concurrent callers with the same question cause one upstream query.
func TestSharing(t *testing.T) {
	release := make(chan struct{})
	z := serve(t, func(w dns.ResponseWriter, r *dns.Msg) {
		<-release
		says(rrs(t, "a.test. 60 IN A 192.0.2.1")...)(w, r)
	})
	c := client(t, Options{Attempt: 30 * time.Second, Total: 30 * time.Second}, z.server(UDP))
	leader, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var failed atomic.Int64
	for i := range 50 {
		ctx := t.Context()
		if i == 0 {
			ctx = leader
		}
		wg.Go(func() {
			a, err := c.Resolve(ctx, "a.test", dns.TypeA)
			if err != nil || len(a.Addrs) != 1 {
				failed.Add(1)
			}
		})
		if i == 0 {
			for z.udp.Load() == 0 { // it does the lookup
				time.Sleep(time.Millisecond)
			}
		}
	}
	leave() // another caller takes over
	for z.udp.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	close(release)
	wg.Wait()
	if z.udp.Load() != 2 || failed.Load() != 1 {
		t.Errorf("asked %d times, %d callers failed", z.udp.Load(), failed.Load())
	}
}

func TestStreams(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	answer := says(rrs(t, "a.test. 0 IN A 192.0.2.1")...)
	lo := net.IPv4(127, 0, 0, 1)
	for name, c := range map[string]struct {
		cert *authority
		life time.Duration
		sans []string
		ips  []net.IP
		name string
		ok   bool
	}{
		"by name":         {ca, time.Hour, []string{"dns.test"}, nil, "dns.test", true},
		"by address":      {ca, time.Hour, nil, []net.IP{lo}, "", true},
		"another name":    {ca, time.Hour, []string{"evil.test"}, []net.IP{lo}, "dns.test", false},
		"another address": {ca, time.Hour, []string{"dns.test"}, []net.IP{net.IPv4(127, 0, 0, 2)}, "", false},
		"unknown issuer":  {other, time.Hour, []string{"dns.test"}, []net.IP{lo}, "dns.test", false},
		"expired":         {ca, -time.Hour, []string{"dns.test"}, []net.IP{lo}, "dns.test", false},
	} {
		z := start(t, nil, answer, c.cert.issue(t, c.life, c.sans, c.ips...))
		o := short
		o.Attempt, o.Roots = 5*time.Second, ca.roots()
		s := z.server(TLS)
		s.Name = c.name
		cl := client(t, o, s)
		for range 3 {
			a, err := cl.Resolve(t.Context(), "a.test", dns.TypeA)
			if (err == nil) != c.ok || c.ok && len(a.Addrs) != 1 {
				t.Errorf("%s: %+v, %v", name, a, err)
			}
		}
		if n := z.conns.Load(); c.ok && n != 1 || !c.ok && z.tcp.Load() > 0 {
			t.Errorf("%s: %d connections, %d questions", name, n, z.tcp.Load())
		}
	}
	if _, err := client(t, short, start(t, nil, answer, nil).server(TLS)).Resolve(t.Context(), "a.test", dns.TypeA); err == nil {
		t.Error("an answer without TLS")
	}
}

// TestStreamEnds: a server closes each connection after one answer.
func TestStreamEnds(t *testing.T) {
	z := start(t, nil, func(w dns.ResponseWriter, r *dns.Msg) {
		says(rrs(t, "a.test. 0 IN A 192.0.2.1")...)(w, r)
		w.Close()
	}, nil)
	c := client(t, Options{}, z.server(TCP))
	for range 5 {
		_, err := c.Resolve(t.Context(), "a.test", dns.TypeA)
		check(t, err)
	}
	half := start(t, nil, func(w dns.ResponseWriter, r *dns.Msg) {
		w.(interface{ Write([]byte) (int, error) }).Write([]byte{1})
		w.Close()
	}, nil)
	if _, err := client(t, short, half.server(TCP)).Resolve(t.Context(), "a.test", dns.TypeA); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("an incomplete answer: %v", err)
	}
}

func TestCache(t *testing.T) {
	z := serve(t, func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(r)
		switch name := dns.CanonicalName(r.Question[0].Name); {
		case strings.HasPrefix(name, "zero"):
			m.Answer = rrs(t, name+" 0 IN A 192.0.2.1")
		case strings.HasPrefix(name, "none"):
			m.Rcode, m.Ns = dns.RcodeNameError, rrs(t, "test. 900 IN SOA ns.test. root.test. 1 2 3 4 900")
		default:
			m.Answer = rrs(t, name+" 60 IN A 192.0.2.1")
		}
		w.WriteMsg(m)
	})
	c := client(t, Options{CacheEntries: 10}, z.server(UDP))
	ask := func(name string) Answer {
		a, err := c.Resolve(t.Context(), name, dns.TypeA)
		check(t, err)
		return a
	}
	for _, c := range []struct {
		name string
		want int64
	}{{"zero.test", 3}, {"none.test", 1}, {"a.test", 1}, {"A.TEST.", 0}} {
		before := z.udp.Load()
		for range 3 {
			ask(c.name)
		}
		if got := z.udp.Load() - before; got != c.want {
			t.Errorf("%s was asked for %d times, want %d", c.name, got, c.want)
		}
	}
	if a := ask("a.test"); !a.Cached || a.TTL > time.Minute || a.TTL < 30*time.Second || a.Latency != 0 || a.Server == "" {
		t.Errorf("%+v", a)
	}
	if a := ask("none.test"); a.TTL > time.Minute {
		t.Errorf("a negative answer has TTL %s", a.TTL)
	}
	if _, ok := c.Cached("A.test.", dns.TypeA); !ok {
		t.Error("Cached does not return it")
	}
	for i := range 100 {
		ask(fmt.Sprintf("n%d.test", i))
	}
	if n := c.cache.entries.Len(); n != 10 {
		t.Errorf("%d entries", n)
	}
	q := question{"a.test", dns.TypeA}
	now := time.Now()
	c.cache.put(q, Answer{TTL: time.Second}, now)
	if _, ok := c.cache.get(q, now.Add(time.Second)); ok {
		t.Error("returned after its TTL")
	}
}

func TestHealth(t *testing.T) {
	var h health
	now := time.Now()
	h.failed(now)
	if h.rank(now) != 0 {
		t.Error("unhealthy after one failure")
	}
	for pause := firstPause; pause <= 2*longestPause; pause *= 2 {
		h.failed(now)
		h.failed(now) // the same failure, reported by another caller
		if want := min(pause, longestPause); h.rank(now.Add(want-1)) == 0 || h.rank(now.Add(want)) != 0 {
			t.Errorf("the pause is not %s", want)
		}
		now = now.Add(min(pause, longestPause))
	}
	h.failed(now)
	h.healthy()
	if h.rank(now) != 0 {
		t.Error("not healthy after an answer")
	}
}
