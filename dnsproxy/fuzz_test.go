package dnsproxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/dnsproxy/upstream"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/redact"
)

// lastOnly is a log that keeps only the last record, because a fuzzer's record would fill the disk.
type lastOnly struct {
	mu   sync.Mutex // guards the fields below
	seq  uint64
	body []byte
}

func (l *lastOnly) Append(_ context.Context, s redact.Sealed) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	l.body = s.Bytes()
	return l.seq, nil
}

func (l *lastOnly) Sync(context.Context, uint64) error { return nil }

// answers is an upstream with fixed addresses in its cache.
type answers []netip.Addr

func (a answers) Cached(string, uint16) (upstream.Answer, bool) {
	return upstream.Answer{Addrs: a, Cached: true}, true
}

func (a answers) Resolve(context.Context, string, uint16) (upstream.Answer, error) {
	return upstream.Answer{Addrs: a}, nil
}

// FuzzServer sends packets through the whole server except its sockets. The server must not panic; each reply must be a
// response with the query's id that miekg/dns can parse; it may contain addresses only if Decide allows the name that
// miekg/dns parses from the query, and only addresses that were opened before.
func FuzzServer(f *testing.F) {
	rules := policy(f, gatewayRule(f, "a.test"), gatewayRule(f, "*.w.test"), directRule(f, "*.d.test", "10.0.0.0/8"))
	for _, name := range []string{"a.test", "x.w.test", "y.d.test", "evil.test", "w.test", ".", `a\.w.test`, `x\.y.w.test`} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeTXT, dns.TypeAXFR} {
			var m dns.Msg
			m.SetQuestion(dns.Fqdn(name), qtype)
			b, err := m.Pack()
			check(f, err)
			f.Add(b, false)
			m.SetEdns0(4096, true)
			b, err = m.Pack()
			check(f, err)
			f.Add(b, true)
		}
	}
	var live netpolicy.Live
	live.Set(rules)
	log := &lastOnly{}
	names := newTable()
	up := answers{netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("169.254.169.254"),
		netip.MustParseAddr("2606:2800::1"), netip.MustParseAddr("::ffff:93.184.216.34"), netip.MustParseAddr("fd00::1")}
	red := redact.New(make([]byte, 32))
	s := &session{
		Server: New(Config{Live: &live, Names: names, Upstream: up, Run: testRun, Recorder: struct {
			*audit.Recorder
			*lastOnly
		}{audit.NewRecorder(log, red), log}}),
		out: make(chan *pending, 1), jobs: make(chan *pending, 1),
	}
	f.Fuzz(func(t *testing.T, packet []byte, tcp bool) {
		if len(names.byName) > 1<<14 {
			clear(names.byName)
		}
		names.opened = nil
		p := newPending()
		p.read(copy(p.packet[:], packet))
		before := log.seq
		if !s.take(t.Context(), p) {
			t.Fatal("the query was lost")
		}
		if log.seq == before {
			t.Fatal("the query is not in the record")
		}
		var again []*pending
		if !s.opened(t.Context(), p, &again) {
			t.Fatal("the path was not opened")
		}
		if p.silent {
			return
		}
		size := p.size
		if tcp {
			size = 1<<16 - 1
		}
		p.reply.text = p.why(testRun)
		judge(t, rules, names, packet, p.pack(nil, p.reply, size), size)
	})
}

// judge checks a reply against the packet as miekg/dns and Decide understand it.
func judge(t *testing.T, rules *netpolicy.Policy, names *table, packet, out []byte, size int) {
	t.Helper()
	var r dns.Msg
	if err := r.Unpack(out); err != nil || !r.Response || r.Id != binary.BigEndian.Uint16(packet) || len(out) > size {
		t.Fatalf("% x is answered % x: %v", packet, out, err)
	}
	if len(r.Answer) == 0 {
		return
	}
	// miekg/dns may reject a part of the packet; only the question counts
	asked, end, err := dns.UnpackDomainName(packet, headerSize)
	if err != nil || end+4 > len(packet) || asked != r.Question[0].Name {
		t.Fatalf("an address for %s in answer to % x: %v", r.Question[0].Name, packet, err)
	}
	qtype, class := binary.BigEndian.Uint16(packet[end:]), binary.BigEndian.Uint16(packet[end+2:])
	name, ok := netpolicy.Name(asked)
	v := netpolicy.Decide(rules, netpolicy.Question{Name: name})
	if !ok || !v.Allow || class != dns.ClassINET || packet[2]>>3 != 0 || binary.BigEndian.Uint16(packet[4:]) != 1 {
		t.Fatalf("an address for %s, which no rule names: % x", asked, packet)
	}
	for _, rr := range r.Answer {
		a, ok := netip.AddrFromSlice(rdata(rr))
		if !ok || rr.Header().Rrtype != qtype || rr.Header().Name != asked {
			t.Fatalf("%s is no answer to %s", rr, asked)
		}
		if v.Rule.Mode == netpolicy.Direct && !v.Rule.AllowsAddr(a) || v.Rule.Mode == netpolicy.Gateway && a != names.byName[name] {
			t.Fatalf("%s for %s", a, name)
		}
		was := false
		for _, o := range names.opened {
			was = was || o.addr == a && o.name == name && o.via == v.Rule.Mode
		}
		if !was {
			t.Fatalf("%s was not opened for %s", a, name)
		}
	}
}

func rdata(rr dns.RR) []byte {
	switch rr := rr.(type) {
	case *dns.A:
		return rr.A.To4()
	case *dns.AAAA:
		return rr.AAAA
	}
	return nil
}

// FuzzParse compares parse with miekg/dns: miekg/dns must read a packet in which parse finds no flaw in the same way,
// and parse must accept what miekg/dns reads as an ordinary query.
func FuzzParse(f *testing.F) {
	f.Add(template(f, "api.example.test"))
	f.Add(template(f, `a\.b.test`))
	var m dns.Msg
	m.SetAxfr("test.")
	b, err := m.Pack()
	check(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, packet []byte) {
		if len(packet) > maxQuery {
			return
		}
		q := parse(packet)
		var m dns.Msg
		err := m.Unpack(packet)
		if q.flawed != nil {
			again, packErr := m.Pack()
			if err == nil && packErr == nil && bytes.Equal(again, packet) && !m.Response && m.Opcode == dns.OpcodeQuery && len(m.Question) == 1 && len(m.Answer)+len(m.Ns)+len(m.Extra) == 0 {
				t.Fatalf("%s in %s", q.flawed.reason, &m)
			}
			return
		}
		if err != nil { // parse does not check options and other records
			return
		}
		got, ok := netpolicy.Name(m.Question[0].Name)
		if q.host != ok || ok && q.name != got || q.qtype != m.Question[0].Qtype || q.class != m.Question[0].Qclass || q.id != m.Id {
			t.Fatalf("%+v from %s", q, &m)
		}
		if !ok {
			if _, ok := netpolicy.Name(q.name); ok {
				t.Fatalf("%q is taken for a host name, from %s", q.name, &m)
			}
		}
		if opt := m.IsEdns0(); len(m.Extra) == 1 && (opt != nil) != q.edns {
			t.Fatalf("EDNS %v from %s", q.edns, &m)
		}
	})
}
