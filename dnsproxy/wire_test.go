package dnsproxy

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/custody-project/custody/audit"
)

// framed prepends the length to a message.
func framed(msg []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...)
}

// TestPackets sends malformed packets: each gets a proper reply or none, and is recorded.
func TestPackets(t *testing.T) {
	s := newSite(t, Config{}, gatewayRule(t, "a.test"))
	good := template(t, "a.test")
	with := func(change func(b []byte) []byte) []byte { return change(slices.Clone(good)) }
	const none = -1
	for _, c := range []struct {
		name   string
		packet []byte
		rcode  int
		reason string
	}{
		{"empty", []byte{}, none, flawShort.reason},
		{"one byte", []byte{1}, none, flawShort.reason},
		{"half a header", good[:11], none, flawShort.reason},
		{"header only", good[:12], dns.RcodeFormatError, flawQuestion.reason},
		{"response", with(func(b []byte) []byte { b[2] |= 0x80; return b }), none, flawResponse.reason},
		{"status", with(func(b []byte) []byte { b[2] |= 2 << 3; return b }), dns.RcodeNotImplemented, flawOpcode.reason},
		{"update", with(func(b []byte) []byte { b[2] |= 5 << 3; return b }), dns.RcodeNotImplemented, flawOpcode.reason},
		{"no question", with(func(b []byte) []byte { b[5] = 0; return b }), dns.RcodeFormatError, flawCounts.reason},
		{"two questions", with(func(b []byte) []byte { b[5] = 2; return b }), dns.RcodeFormatError, flawCounts.reason},
		{"65535 questions", with(func(b []byte) []byte { b[4], b[5] = 255, 255; return b }), dns.RcodeFormatError, flawCounts.reason},
		{"an answer in it", with(func(b []byte) []byte { b[7] = 1; return b }), dns.RcodeFormatError, flawCounts.reason},
		{"an authority in it", with(func(b []byte) []byte { b[9] = 1; return b }), dns.RcodeFormatError, flawCounts.reason},
		{"additional missing", with(func(b []byte) []byte { b[11] = 2; return b }), dns.RcodeFormatError, flawExtra.reason},
		{"pointer to itself", append(slices.Clone(good[:12]), 0xc0, 12, 0, 1, 0, 1), dns.RcodeFormatError, flawQuestion.reason},
		{"pointer to the header", append(slices.Clone(good[:12]), 1, 'a', 0xc0, 0, 0, 1, 0, 1), dns.RcodeFormatError, flawQuestion.reason},
		{"label of type 01", append(slices.Clone(good[:12]), 0x41, 'a', 0, 0, 1, 0, 1), dns.RcodeFormatError, flawQuestion.reason},
		{"name of 300 bytes", append(append(slices.Clone(good[:12]), []byte(strings.Repeat("\x09abcdefghi", 30))...), 0, 0, 1, 0, 1), dns.RcodeFormatError, flawQuestion.reason},
		{"label beyond the end", append(slices.Clone(good[:12]), 63, 'a'), dns.RcodeFormatError, flawQuestion.reason},
		{"type missing", good[:12+8], dns.RcodeFormatError, flawQuestion.reason},
		{"class missing", good[:12+10], dns.RcodeFormatError, flawQuestion.reason},
		{"class CHAOS", with(func(b []byte) []byte { b[12+8+3] = 3; return b }), dns.RcodeRefused, reasonClass},
		{"class ANY", with(func(b []byte) []byte { b[12+8+3] = 255; return b }), dns.RcodeRefused, reasonClass},
		{"EDNS 1", with(func(b []byte) []byte { b[len(b)-5] = 1; return b }), dns.RcodeBadVers, flawVersion.reason},
		{"two OPT", with(func(b []byte) []byte { b[11] = 2; return append(b, b[len(b)-11:]...) }), dns.RcodeFormatError, flawExtra.reason},
		{"OPT of a name", with(func(b []byte) []byte { return slices.Insert(b, len(b)-11, 1, 'x') }), dns.RcodeFormatError, flawExtra.reason},
		{"option beyond the end", with(func(b []byte) []byte { b[len(b)-1] = 9; return b }), dns.RcodeFormatError, flawExtra.reason},
		{"too long", with(func(b []byte) []byte { return append(b, make([]byte, maxQuery)...) }), none, flawTooLong.reason},
		{"of 4 KiB", with(func(b []byte) []byte { return append(b, make([]byte, 4096)...) }), none, flawTooLong.reason},
	} {
		before := len(s.records(t))
		conn, err := net.Dial("udp", s.addr)
		check(t, err)
		conn.Write(c.packet)
		conn.Write(good) // its answer shows that the packet before got none
		buf := make([]byte, 4096)
		n, err := conn.Read(buf)
		check(t, err)
		m := new(dns.Msg)
		if err := m.Unpack(buf[:n]); err != nil {
			t.Errorf("%s: % x: %v", c.name, buf[:n], err)
		}
		if c.rcode == none && (m.Rcode != 0 || len(m.Answer) != 1) || c.rcode != none && (m.Rcode != c.rcode || len(m.Answer) > 0 || m.Id != binary.BigEndian.Uint16(good)) {
			t.Errorf("%s: %s", c.name, m)
		}
		if c.rcode != none {
			_, err := conn.Read(buf)
			check(t, err)
		}
		conn.Close()
		got := s.records(t)[before:]
		if len(got) != 2 || got[0].DNS.Verdict != audit.Deny || got[0].DNS.Reason != c.reason || got[0].DNS.Rule != "default" {
			t.Errorf("%s: recorded as %+v", c.name, got)
		}
	}
}

// TestCapitals: the answer repeats the capitals of the query, which some clients check.
func TestCapitals(t *testing.T) {
	s := newSite(t, Config{}, gatewayRule(t, "api.example.test"))
	for _, name := range []string{"api.example.test.", "aPi.ExAmPlE.tEsT.", "API.EXAMPLE.TEST."} {
		m := s.ask(t, name, dns.TypeA)
		if m.Question[0].Name != name || len(m.Answer) != 1 || m.Answer[0].Header().Name != name {
			t.Errorf("asked for %s: %s", name, m)
		}
	}
	if a := s.names.all(); a[0].addr != a[2].addr || a[0].name != "api.example.test" {
		t.Errorf("%+v", a)
	}
}

// TestSizes: an answer fits the client's buffer size, or has the truncation bit.
func TestSizes(t *testing.T) {
	name := strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + ".d.test"
	var lines []string
	for i := range 32 {
		lines = append(lines, fmt.Sprintf("%s. 60 IN AAAA 2606:2800::%x", name, i+1))
	}
	z := newZone(t, records(t, map[string][]string{name + ". AAAA": lines}))
	s := newSite(t, Config{Upstream: z.client(t)}, directRule(t, "*.d.test"))
	for _, c := range []struct {
		size    int // of EDNS; 0 for none
		fits    int
		network string
	}{
		{0, 12, "udp"}, {100, 12, "udp"}, {512, 12, "udp"}, {700, 18, "udp"}, {1232, 32, "udp"}, {4096, 32, "udp"}, {65535, 32, "udp"}, {0, 32, "tcp"}, {512, 32, "tcp"},
	} {
		var m dns.Msg
		m.SetQuestion(name+".", dns.TypeAAAA)
		limit := 512
		if c.size > 0 {
			m.SetEdns0(uint16(c.size), false)
			limit = max(c.size, 512)
		}
		conn, err := net.Dial(c.network, s.addr)
		check(t, err)
		co := &dns.Conn{Conn: conn, UDPSize: 65535}
		check(t, co.WriteMsg(&m))
		r, err := co.ReadMsg()
		check(t, err)
		conn.Close()
		b, err := r.Pack()
		check(t, err)
		if c.network == "udp" && r.Truncated != (len(r.Answer) < 32) || len(r.Answer) < c.fits || len(r.Answer) > c.fits+1 || (r.IsEdns0() != nil) != (c.size > 0) {
			t.Errorf("size %d over %s: %d addresses in about %d bytes, limit %d, truncated %v", c.size, c.network, len(r.Answer), len(b), limit, r.Truncated)
		}
	}
	// The text of an error is omitted before anything else.
	long := strings.Repeat(strings.Repeat("x", 49)+".", 5) + "abc" // 255 bytes: the longest
	var m dns.Msg
	m.SetQuestion(long+".", dns.TypeA)
	m.SetEdns0(512, false)
	r, err := s.exchange("udp", &m)
	check(t, err)
	if info, _ := extended(r); r.Rcode != dns.RcodeRefused || info == 0 || r.Truncated {
		t.Errorf("%s", r)
	}
}

// TestPipelining writes many queries without waiting, and reads the answers later.
func TestPipelining(t *testing.T) {
	s := newSite(t, Config{}, gatewayRule(t, "*.a.test"))
	c, err := net.Dial("tcp", s.addr)
	check(t, err)
	defer c.Close()
	const n = 10 * maxInFlight
	var out []byte
	for i := range n {
		q := template(t, fmt.Sprintf("n%04d.a.test", i))
		binary.BigEndian.PutUint16(q, uint16(i))
		out = append(out, framed(q)...)
	}
	_, err = c.Write(out[:7]) // in pieces
	check(t, err)
	_, err = c.Write(out[7:])
	check(t, err)
	check(t, c.(*net.TCPConn).CloseWrite())
	seen := map[uint16]bool{}
	all, err := io.ReadAll(c)
	check(t, err)
	for len(all) > 0 {
		size := int(binary.BigEndian.Uint16(all))
		m := new(dns.Msg)
		check(t, m.Unpack(all[2:2+size]))
		if len(m.Answer) != 1 || seen[m.Id] {
			t.Errorf("%s", m)
		}
		seen[m.Id] = true
		all = all[2+size:]
	}
	if len(seen) != n {
		t.Errorf("%d answers, want %d", len(seen), n)
	}
}

// TestSlowClients: clients hold connections open in various ways. Each connection is closed in time, connections over
// the limit are closed immediately, and other clients are served meanwhile.
func TestSlowClients(t *testing.T) {
	const conns = 8
	s := newSite(t, Config{Conns: conns, Idle: 300 * time.Millisecond}, gatewayRule(t, "a.test"))
	q := framed(template(t, "a.test"))
	ways := []func(c net.Conn){
		func(c net.Conn) {},                               // silent
		func(c net.Conn) { c.Write(q[:1]) },               // half a length
		func(c net.Conn) { c.Write(q[:10]) },              // half a message
		func(c net.Conn) { c.Write([]byte{255, 255, 1}) }, // a long message
		func(c net.Conn) { // byte by byte
			for _, b := range append(slices.Clone(q), q...) {
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		},
	}
	began := time.Now()
	done := make(chan error, conns)
	for i := range conns {
		c, err := net.Dial("tcp", s.addr)
		check(t, err)
		defer c.Close()
		go ways[i%len(ways)](c)
		go func() {
			c.SetReadDeadline(time.Now().Add(20 * time.Second))
			_, err := io.Copy(io.Discard, c)
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				done <- err
				return
			}
			done <- nil // closed or reset
		}()
	}
	for s.Stats().Refused == 0 { // all slots are taken
		c, err := net.Dial("tcp", s.addr)
		check(t, err)
		c.Close()
		if time.Since(began) > 10*time.Second {
			t.Fatal("connections over the limit are not refused")
		}
	}
	if m := s.ask(t, "a.test", dns.TypeA); len(m.Answer) != 1 {
		t.Errorf("%s", m)
	}
	for range conns {
		check(t, <-done)
	}
	if m := s.askOver(t, "tcp", "a.test", dns.TypeA); len(m.Answer) != 1 {
		t.Errorf("%s", m)
	}
}

// TestDeafClient: a client that sends queries and reads no answers does not block other clients.
func TestDeafClient(t *testing.T) {
	s := newSite(t, Config{}, gatewayRule(t, "a.test"))
	c, err := net.Dial("tcp", s.addr)
	check(t, err)
	defer c.Close()
	check(t, c.(*net.TCPConn).SetReadBuffer(2048))
	q := slices.Repeat(framed(template(t, "a.test")), 1000)
	c.SetWriteDeadline(time.Now().Add(time.Second))
	for {
		if _, err := c.Write(q); err != nil {
			break
		}
	}
	for range 10 {
		if m := s.ask(t, "a.test", dns.TypeA); len(m.Answer) != 1 {
			t.Errorf("%s", m)
		}
	}
}
