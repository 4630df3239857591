package upstream

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func FuzzParseServer(f *testing.F) {
	for _, s := range []string{
		"udp://10.0.0.53", "tcp://10.0.0.53:5353", "tls://9.9.9.9#dns.quad9.net", "tls://[2620:fe::fe]:853#dns.quad9.net", "udp://2620:fe::fe",
		"udp://[fe80::1%eth0]:53", "udp://fe80::1%eth0", "10.0.0.53", "tls://dns.quad9.net", "udp://1.2.3.4#x", "tls://1.2.3.4#", "udp://0.0.0.0", "udp://::ffff:1.2.3.4",
		"udp://1.2.3.4:0", "udp://1.2.3.4:99999", "UDP://1.2.3.4", "udp://[1.2.3.4]", "udp://224.0.0.1", "tls://1.2.3.4#a#b", "tls://1.2.3.4#a b", "tls://1.2.3.4#a.",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		s, err := ParseServer(in)
		if err != nil {
			return
		}
		if !s.Addr.IsValid() || s.Addr.Port() == 0 || s.Name != "" && s.Proto != TLS {
			t.Errorf("%q is %+v", in, s)
		}
		if again, err := ParseServer(s.String()); err != nil || again != s {
			t.Errorf("%q is %s, which is %+v, %v", in, s, again, err)
		}
	})
}

func TestParseServer(t *testing.T) {
	for in, want := range map[string]string{ // empty: an error
		"udp://10.0.0.53": "udp://10.0.0.53:53", "tcp://10.0.0.53:5353": "tcp://10.0.0.53:5353",
		"tls://9.9.9.9#DNS.quad9.net": "tls://9.9.9.9:853#dns.quad9.net", "tls://[2620:fe::fe]": "tls://[2620:fe::fe]:853",
		"udp://2620:fe::fe": "udp://[2620:fe::fe]:53", "tls://1.2.3.4#a.": "tls://1.2.3.4:853#a", "udp://fe80::1%eth0": "udp://[fe80::1%eth0]:53",
		"10.0.0.53": "", "tls://dns.quad9.net": "", "udp://1.2.3.4#x": "", "tls://1.2.3.4#": "", "udp://0.0.0.0": "", "udp://[::]:53": "", "udp://::ffff:1.2.3.4": "",
		"udp://1.2.3.4:0": "", "udp://1.2.3.4:99999": "", "https://1.2.3.4": "", "": "", "udp://": "", "udp://224.0.0.1": "", "tls://1.2.3.4#1.2.3.4": "", "tls://1.2.3.4#-a": "", "tls://1.2.3.4#a b": "",
	} {
		s, err := ParseServer(in)
		if (err == nil) != (want != "") || err == nil && s.String() != want {
			t.Errorf("%q is %s, %v; want %s", in, s, err, want)
		}
	}
}

func FuzzResolvConf(f *testing.F) {
	for _, s := range []string{
		"nameserver 10.0.0.53\n", "# a\n; b\nsearch x.test\nnameserver 1.1.1.1 # c\nnameserver\t::1\nnameserver fe80::1%eth0\nnameserver 4.4.4.4\n",
		"nameserver example.com\n", "", "nameserver\n", "NAMESERVER 1.1.1.1", " nameserver 1.1.1.1", "nameserver 0.0.0.0\noptions edns0", "nameserver ::ffff:1.2.3.4\r\n", strings.Repeat("x", 70<<10),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		servers, err := readResolvConf(strings.NewReader(in))
		if (err == nil) != (len(servers) > 0) || len(servers) > maxServers {
			t.Fatalf("%v, %v", servers, err)
		}
		for _, s := range servers {
			if s.Proto != UDP || s.Addr.Port() != 53 || !s.Addr.Addr().IsValid() || s.Addr.Addr().IsUnspecified() || s.Addr.Addr().Is4In6() {
				t.Errorf("%+v", s)
			}
		}
	})
}

func TestResolvConf(t *testing.T) {
	got, err := readResolvConf(strings.NewReader("# a\nsearch x.test\nnameserver 1.1.1.1 # c\nnameserver\t::1\nnameserver 0.0.0.0\nnameserver 4.4.4.4\n"))
	check(t, err)
	if want := []string{"udp://1.1.1.1:53", "udp://[::1]:53", "udp://127.0.0.1:53"}; !slices.Equal(texts(got), want) {
		t.Errorf("%v, want %v", got, want)
	}
	if _, err := ResolvConf("testdata/none"); err == nil {
		t.Error("servers from a missing file")
	}
}

// FuzzResponse: a server answers with arbitrary packets. slowRead, which follows the chain of CNAMEs in an obvious way,
// must find each returned address at its end.
func FuzzResponse(f *testing.F) {
	q := question{"a.test", dns.TypeA}
	p, err := q.pack(false)
	check(f, err)
	for _, lines := range [][]string{
		{"a.test. 60 IN A 192.0.2.1"}, {"a.test. 60 IN CNAME b.test.", "b.test. 60 IN A 192.0.2.1", "c.test. 60 IN A 192.0.2.66"},
		{"a.test. 60 IN CNAME a.test."}, {"a.test. 60 IN AAAA 2001:db8::1"}, long(9), {},
	} {
		m := new(dns.Msg)
		m.SetQuestion("a.test.", dns.TypeA)
		m.Response = true
		m.Answer = rrs(f, lines...)
		m.Compress = true
		b, err := m.Pack()
		check(f, err)
		f.Add(b[p.end:], uint16(len(lines)), uint16(0), uint16(0x8180))
	}
	f.Fuzz(func(t *testing.T, tail []byte, answers, ns, flags uint16) {
		msg := slices.Clone(p.bytes[:p.end])
		binary.BigEndian.PutUint16(msg[2:], flags)
		binary.BigEndian.PutUint16(msg[6:], answers)
		binary.BigEndian.PutUint16(msg[8:], ns)
		binary.BigEndian.PutUint16(msg[10:], 0)
		msg = append(msg, tail...)
		if p.compare(msg) == foreign {
			return
		}
		m, err := unpack(msg)
		if err != nil {
			return
		}
		got, err := read(m, q)
		if err != nil && !errors.Is(err, ErrChain) {
			t.Fatal(err)
		}
		if len(got.addrs) > MaxAddrs || len(got.chain) > MaxChain || time.Duration(got.ttl)*time.Second < 0 {
			t.Fatalf("%+v", got)
		}
		end := q.name
		for _, name := range got.chain {
			if !slowCNAME(m, end, name) {
				t.Fatalf("%s does not resolve to %s in\n%s", end, name, m)
			}
			end = name
		}
		for _, a := range got.addrs {
			if !slices.ContainsFunc(m.Answer, func(rr dns.RR) bool {
				r, ok := rr.(*dns.A)
				return ok && strings.EqualFold(r.Hdr.Name, end+".") && r.A.String() == a.String()
			}) {
				t.Fatalf("%s is not an address of %s in\n%s", a, end, m)
			}
		}
	})
}

func slowCNAME(m *dns.Msg, from, to string) bool {
	return slices.ContainsFunc(m.Answer, func(rr dns.RR) bool {
		c, ok := rr.(*dns.CNAME)
		return ok && strings.EqualFold(strings.TrimSuffix(c.Hdr.Name, "."), from) && strings.EqualFold(strings.TrimSuffix(c.Target, "."), to)
	})
}

// FuzzCompare: a packet is accepted as the response only if it repeats the id and the question, and as a recased one
// only if no more than capitals differ.
func FuzzCompare(f *testing.F) {
	p, err := question{"ab.test", dns.TypeAAAA}.pack(true)
	check(f, err)
	f.Add(p.bytes)
	reply := slices.Clone(p.bytes)
	reply[2] |= 0x80
	f.Add(reply)
	f.Fuzz(func(t *testing.T, msg []byte) {
		like := p.compare(msg)
		m := new(dns.Msg)
		if like == foreign || m.Unpack(msg) != nil {
			return
		}
		if !m.Response || m.Id != binary.BigEndian.Uint16(p.bytes) || len(m.Question) != 1 ||
			m.Question[0].Qtype != dns.TypeAAAA || m.Question[0].Qclass != dns.ClassINET || !strings.EqualFold(m.Question[0].Name, "ab.test.") {
			t.Errorf("accepted as a response: %s", m)
		}
	})
}
