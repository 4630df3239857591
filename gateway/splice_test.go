package gateway

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

// handshake makes a TLS connection to dialled, with sni as the server name.
func (w *world) handshake(dialled, sni string, change ...func(*tls.Config)) (*tls.Conn, error) {
	w.Helper()
	cfg := &tls.Config{RootCAs: w.roots, ServerName: sni}
	for _, f := range change {
		f(cfg)
	}
	t := tls.Client(w.dial(dialled, 443), cfg)
	return t, t.Handshake()
}

func TestSpliceEndToEnd(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{rule("a.example")})
	h := w.newHost("a.example", 443, nil)
	resp, err := w.client("a.example").Get("https://a.example/x?y=1")
	if err != nil {
		t.Fatal(err)
	}
	body := hear(resp.Body)
	if body != "hello from a.example" || resp.TLS.PeerCertificates[0].Issuer.CommonName != "internet" {
		t.Fatalf("%q with a certificate of %v", body, resp.TLS.PeerCertificates[0].Issuer)
	}
	open := w.flow(audit.FlowOpen)
	if open.ID == "" || open.Name != "a.example" || open.Rule != "a.example tcp/443" || open.Peer != h.addr.String()+":443" ||
		open.DNSSeq != 7 || open.Generation != 1 || open.Verdict != audit.Allow || open.DstIP != w.names.base.String() || open.DstPort != 443 || open.SrcPort == 0 {
		t.Errorf("%+v", open)
	}
	w.client("a.example").CloseIdleConnections()
	w.Gateway.Close()
	end := w.flow(audit.FlowClose)
	if end.ID != open.ID || end.Peer != open.Peer || end.BytesIn != 2000 || end.DurationNS <= 0 {
		t.Errorf("%+v", end)
	}
}

// TestNames tries every way to send another name than the destination's.
func TestNames(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{rule("a.example"), rule("*.wild.example")})
	h := w.newHost("a.example", 443, nil)
	other := w.newHost("other.example", 443, nil)
	for _, c := range []struct {
		sni    string
		alert  string
		reason string
	}{
		{"other.example", "unrecognized name", "another server"},
		{"a.example.other.example", "unrecognized name", "another server"},
		{"xa.example", "unrecognized name", "another server"},
		{"", "unrecognized name", "names no server"},
	} {
		_, err := w.handshake("a.example", c.sni, func(cfg *tls.Config) { cfg.InsecureSkipVerify = true })
		if err == nil || !strings.Contains(err.Error(), c.alert) {
			t.Errorf("SNI %q: %v", c.sni, err)
		}
		if f := w.lastDeny(); !strings.Contains(f.Reason, c.reason) || string(f.SNI) != c.sni || f.Name != "a.example" {
			t.Errorf("SNI %q: %+v", c.sni, f)
		}
	}
	if _, err := w.handshake("unnamed.example", "unnamed.example"); err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("a name without a rule: %v", err)
	}
	if f := w.lastDeny(); f.Reason != string(netpolicy.NoRule) || f.Rule != netpolicy.Default {
		t.Errorf("%+v", f)
	}
	if h.hits.Load()+other.hits.Load() != 0 || len(w.zone.questions()) != 0 {
		t.Errorf("%d and %d connections, looked up %v", h.hits.Load(), other.hits.Load(), w.zone.questions())
	}
	if c, err := w.handshake("a.example", "A.eXample", func(cfg *tls.Config) { cfg.InsecureSkipVerify = true }); err != nil {
		t.Errorf("capitals: %v", err)
	} else {
		c.Close()
	}
}

func (w *world) lastDeny() *audit.Flow {
	w.Helper()
	var last *audit.Flow
	for _, ev := range w.log.all() {
		if ev.Flow != nil && ev.Flow.State == audit.FlowDeny {
			last = ev.Flow
		}
	}
	if last == nil {
		w.Fatalf("no denial in the record: %s", w.dump())
	}
	return last
}

// rawHello returns the first flight of crypto/tls for a name.
func rawHello(tb testing.TB, cfg *tls.Config) []byte {
	tb.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	go func() { _ = tls.Client(a, cfg).Handshake() }()
	raw, err := readRecord(b, nil, 0, recordPayload)
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// withExtension returns the hello with one more extension, and adjusted lengths.
func withExtension(raw []byte, kind uint16, data []byte) []byte {
	m := bytes.Clone(raw[recordHeader:])
	at := 4 + 2 + randomSize
	at += 1 + int(m[at])
	at += 2 + int(binary.BigEndian.Uint16(m[at:]))
	at += 1 + int(m[at])
	ext := binary.BigEndian.AppendUint16(nil, kind)
	ext = binary.BigEndian.AppendUint16(ext, uint16(len(data)))
	ext = append(ext, data...)
	binary.BigEndian.PutUint16(m[at:], binary.BigEndian.Uint16(m[at:])+uint16(len(ext)))
	m = append(m[:at+2], append(ext, m[at+2:]...)...)
	m[1], m[2], m[3] = byte((len(m)-4)>>16), byte((len(m)-4)>>8), byte(len(m)-4)
	return records(m, recordPayload)
}

// records splits a handshake message into records of at most n bytes.
func records(m []byte, n int) []byte {
	var out []byte
	for len(m) > 0 {
		k := min(n, len(m))
		out = append(out, typeHandshake, 3, 1, byte(k>>8), byte(k))
		out = append(out, m[:k]...)
		m = m[k:]
	}
	return out
}

// TestHelloInPieces sends hellos byte by byte, in records of one byte, and with a post-quantum key share that needs more
// than one segment.
func TestHelloInPieces(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{rule("a.example")})
	w.newHost("a.example", 443, nil)
	raw := rawHello(t, &tls.Config{ServerName: "a.example", RootCAs: w.roots})
	if len(raw) < 1400 {
		t.Fatalf("a hello of %d bytes has no post-quantum key share", len(raw))
	}
	big := withExtension(raw, 0x7a7a, make([]byte, 20000)) // more than one record
	for name, bytes := range map[string][]byte{
		"whole": raw, "records of 1": records(raw[recordHeader:], 1), "records of 100": records(raw[recordHeader:], 100), "20 KiB": big,
	} {
		c := w.dial("a.example", 443)
		for len(bytes) > 0 {
			n := min(len(bytes), 1+len(bytes)/40)
			if _, err := c.Write(bytes[:n]); err != nil {
				t.Fatal(err)
			}
			bytes = bytes[n:]
		}
		first := make([]byte, 6)
		if _, err := io.ReadFull(c, first); err != nil || first[0] != typeHandshake || first[5] != serverHelloType {
			t.Errorf("%s: %x, %v", name, first, err)
		}
		c.Close()
	}
	// Byte by byte with pauses, for a complete connection.
	slow := &slowly{TCPConn: w.dial("a.example", 443)}
	c := tls.Client(slow, &tls.Config{ServerName: "a.example", RootCAs: w.roots})
	if err := c.Handshake(); err != nil {
		t.Error(err)
	}
}

// slowly writes its first 2000 bytes one by one.
type slowly struct {
	*net.TCPConn
	n int
}

func (s *slowly) Write(p []byte) (int, error) {
	for i := range p {
		if s.n++; s.n > 2000 {
			n, err := s.TCPConn.Write(p[i:])
			return i + n, err
		}
		if _, err := s.TCPConn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

// TestHelloRefused sends hellos that clients do not send, and other data.
func TestHelloRefused(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{rule("a.example")}, func(c *Config) { c.Limits.Hello = 300 * time.Millisecond })
	h := w.newHost("a.example", 443, nil)
	raw := rawHello(t, &tls.Config{ServerName: "a.example"})
	none := rawHello(t, &tls.Config{InsecureSkipVerify: true})
	sni := func(entries string) []byte { return withExtension(none, extServerName, lengthen(2, entries)) }
	one := func(name string) string { return "\x00" + string(lengthen(2, name)) }
	for name, c := range map[string]struct {
		bytes  []byte
		reason string
	}{
		"no sni":             {none, "names no server"},
		"ech":                {withExtension(raw, extECH, []byte{0, 0, 1, 0, 1, 0, 0, 0, 0, 0}), "encrypted ClientHello"},
		"esni":               {withExtension(raw, extESNI, []byte{1}), "encrypted ClientHello"},
		"second sni":         {withExtension(raw, extServerName, lengthen(2, one("a.example"))), "is repeated"},
		"two names":          {sni(one("a.example") + one("b.example")), "more than one server name"},
		"two, wrong first":   {sni(one("b.example") + one("a.example")), "more than one server name"},
		"other type":         {sni("\x01" + string(lengthen(2, "a.example"))), "of type 1"},
		"final dot":          {sni(one("a.example.")), "another server"},
		"nul":                {sni(one("a.example\x00.b.example")), "another server"},
		"nul at the end":     {sni(one("a.example\x00")), "another server"},
		"address":            {sni(one("198.18.1.1")), "another server"},
		"space":              {sni(one(" a.example")), "another server"},
		"wide letters":       {sni(one("ａ.example")), "another server"},
		"kelvin sign":        {sni(one("\u212a.example")), "another server"},
		"bad list length":    {withExtension(none, extServerName, append(lengthen(2, one("a.example")), 0)), "length is wrong"},
		"empty list":         {withExtension(none, extServerName, []byte{0, 0}), "empty"},
		"trailing":           {records(append(bytes.Clone(raw[recordHeader:]), 1, 0, 0, 0), recordPayload), "further bytes after it"},
		"too long":           {records(append([]byte{1, 1, 0, 0}, make([]byte, 100)...), recordPayload), "at most"},
		"ccs amid":           {append(records(raw[recordHeader:], 100)[:105], 20, 3, 1, 0, 1, 1), "within the ClientHello"},
		"empty record":       {append(records(raw[recordHeader:], 100)[:105], 22, 3, 1, 0, 0), "empty TLS record"},
		"server hello":       {records(append([]byte{2, 0, 0, 40}, make([]byte, 40)...), recordPayload), "type 2"},
		"ssl 3 record":       {append([]byte{22, 2, 0}, raw[3:]...), "not a record of TLS"},
		"stops in the midst": {raw[:700], "in time"},
		"nothing":            {nil, "mode: direct"},
		"ssh":                {[]byte("SSH-2.0-x\r\n"), "443 accepts only TLS"},
		"sslv2":              {[]byte{0x80, 0x2e, 1, 0, 2}, "neither TLS nor HTTP"},
		"http":               {[]byte("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"), "443 accepts only TLS"},
	} {
		conn := w.dial("a.example", 443)
		if _, err := conn.Write(c.bytes); err != nil {
			t.Fatal(err)
		}
		answer := hear(conn)
		if f := w.lastDeny(); !strings.Contains(f.Reason, c.reason) {
			t.Errorf("%s: %q, answered %q", name, f.Reason, answer)
		}
	}
	if h.hits.Load() != 0 {
		t.Errorf("the host accepted %d connections", h.hits.Load())
	}
}

// lengthen prepends a length of n bytes to s.
func lengthen(n int, s string) []byte {
	var b []byte
	for i := n - 1; i >= 0; i-- {
		b = append(b, byte(len(s)>>(8*i)))
	}
	return append(b, s...)
}

// TestRetry: the server requests another key share. The second ClientHello must have the same name.
func TestRetry(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{rule("a.example")})
	addr := newAddr()
	w.zone.set("a.example", addr)
	cert := w.ca.leaf(t, "a.example")
	l, err := tls.Listen("tcp", addr.String()+":443", &tls.Config{
		Certificates: []tls.Certificate{*cert}, CurvePreferences: []tls.CurveID{tls.CurveP521}, MinVersion: tls.VersionTLS13,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.WriteString(c, "welcome")
				c.Close()
			}()
		}
	}()
	c, err := w.handshake("a.example", "a.example") // crypto/tls offers P-521 without a key share
	if err != nil {
		t.Fatal(err)
	}
	if got := hear(c); got != "welcome" || !c.ConnectionState().HelloRetryRequest {
		t.Errorf("%q, retry %v", got, c.ConnectionState().HelloRetryRequest)
	}
	c.Close()
	raw := rawHello(t, &tls.Config{ServerName: "a.example"})
	conn := w.dial("a.example", 443)
	conn.Write(raw)
	answer, retry, err := readServerHello(conn)
	if err != nil || !retry {
		t.Fatalf("%x %v %v", answer, retry, err)
	}
	fronted := bytes.ReplaceAll(raw, []byte("a.example"), []byte("b.example"))
	conn.Write(append([]byte{20, 3, 3, 0, 1, 1}, fronted...))
	hear(conn)
	w.until("the end in the record", func() bool { return w.count(audit.FlowClose) == 2 })
	found := false
	for _, ev := range w.log.all() {
		found = found || ev.Flow != nil && strings.Contains(ev.Flow.Reason, "in its second ClientHello")
	}
	if !found {
		t.Errorf("the record has no reason: %s", w.dump())
	}
}

// TestAddresses gives names addresses to which they must not resolve.
func TestAddresses(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{
		rule("a.example"), rule("inside.example", addresses("127.0.0.0/8")),
		rule("mine.example", addresses("93.184.255.1/32")),
	})
	own := netip.MustParseAddr("93.184.255.1")
	w.self.Store(own, true)
	web := w.newHostAt(own, w.ca.leaf(t, "mine.example"), 443, nil)
	w.zone.set("mine.example", own)
	for _, bad := range []string{
		"127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1", "192.168.1.1", "0.0.0.0", "224.0.0.1", "198.18.1.1", "255.255.255.255",
		"::1", "fe80::1", "fd00::1", "64:ff9b::a9fe:a9fe", "::ffff:127.0.0.1", "2002:7f00:1::", "ff02::1", own.String(),
	} {
		w.zone.set("a.example", netip.MustParseAddr(bad))
		if _, err := w.handshake("a.example", "a.example"); err == nil {
			t.Errorf("%s was reached", bad)
		}
		if f := w.lastDeny(); !strings.Contains(f.Reason, "has no allowed address") {
			t.Errorf("%s: %+v", bad, f)
		}
	}
	good := w.newHost("a.example", 443, nil)
	w.zone.set("a.example", netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"), good.addr)
	for _, name := range []string{"a.example", "mine.example"} {
		c, err := w.handshake(name, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c.Close()
	}
	if web.hits.Load() != 1 || good.hits.Load() != 1 {
		t.Errorf("%d and %d connections", web.hits.Load(), good.hits.Load())
	}
	dropped := 0
	for _, ev := range w.log.all() {
		if ev.DNS != nil {
			dropped += len(ev.DNS.Dropped)
		}
	}
	if dropped < 17 {
		t.Errorf("the record has %d dropped addresses", dropped)
	}
}

// TestFallback: the first addresses of a name do not answer.
func TestFallback(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{rule("a.example")}, func(c *Config) { c.Limits.Fallback = 20 * time.Millisecond })
	good := w.newHost("a.example", 443, nil)
	six := netip.MustParseAddr("2606:2800::5") // exists, and refuses connections
	w.zone.set("a.example", six, netip.MustParseAddr("2a00::1"), newAddr(), good.addr)
	c, err := w.handshake("a.example", "a.example")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	peers := map[string]bool{}
	for _, ev := range w.log.all() {
		if ev.Flow != nil && ev.Flow.State == audit.FlowOpen {
			peers[ev.Flow.Peer] = true
		}
	}
	if !peers["[2606:2800::5]:443"] || !peers[good.addr.String()+":443"] || peers["[2a00::1]:443"] {
		t.Errorf("tried %v", peers)
	}
	if end := w.flow(audit.FlowClose); end.Peer != good.addr.String()+":443" {
		t.Errorf("%+v", end)
	}
}

// TestSix connects to a host over IPv6.
func TestSix(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{rule("a.example")})
	six := netip.MustParseAddr("2606:2800::6")
	w.newHostAt(six, w.ca.leaf(t, "a.example"), 443, nil)
	w.zone.set("a.example", six)
	resp, err := w.client("a.example").Get("https://a.example/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if f := w.flow(audit.FlowOpen); f.Peer != "[2606:2800::6]:443" {
		t.Errorf("%+v", f)
	}
}

// TestWithoutRecord: the record fails. The gateway must not dial.
func TestWithoutRecord(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{rule("a.example"), rule("c.example", ports(80)), rule("o.example", withHTTP(nil, nil))})
	hosts := []*host{w.newHost("a.example", 443, nil), w.newHost("c.example", 80, nil), w.newHost("o.example", 443, nil)}
	w.log.fail.Store(true)
	if _, err := w.handshake("a.example", "a.example"); err == nil {
		t.Error("a handshake without a record")
	}
	if got := w.say("c.example", 80, "GET / HTTP/1.1\r\nHost: c.example\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 503") {
		t.Errorf("%q", got)
	}
	if resp, err := w.client("o.example").Get("https://o.example/"); err != nil || resp.StatusCode != 503 {
		t.Errorf("%v %v", resp, err)
	}
	for _, h := range hosts {
		if h.hits.Load() != 0 {
			t.Error("a host was dialled without a record")
		}
	}
}

// TestBulk sends much data in both directions and compares digests.
func TestBulk(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{rule("a.example")})
	w.newHost("a.example", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		n, _ := io.Copy(sum, r.Body)
		fmt.Fprintf(rw, "%d %x", n, sum.Sum(nil))
	}))
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	resp, err := w.client("a.example").Post("https://a.example/", "", bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := hear(resp.Body), fmt.Sprintf("%d %x", len(data), sha256.Sum256(data)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestHalfClose closes one direction and uses the other.
func TestHalfClose(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{rule("a.example")})
	addr := newAddr()
	w.zone.set("a.example", addr)
	cert := w.ca.leaf(t, "a.example")
	l, err := tls.Listen("tcp", addr.String()+":443", &tls.Config{Certificates: []tls.Certificate{*cert}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		b, _ := io.ReadAll(c)
		fmt.Fprintf(c, "%d bytes", len(b))
		c.Close()
	}()
	c, err := w.handshake("a.example", "a.example")
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "twelve bytes")
	c.CloseWrite()
	c.NetConn().(*net.TCPConn).CloseWrite()
	if got := hear(c); got != "12 bytes" {
		t.Errorf("%q", got)
	}
	if f := w.flow(audit.FlowClose); f.Reason != "" {
		t.Errorf("%+v", f)
	}
}

// TestWrongCertificate: the client checks the certificate of a spliced connection.
func TestWrongCertificate(t *testing.T) {
	w := newWorld(t, []netpolicy.Rule{rule("a.example")})
	addr := newAddr()
	w.zone.set("a.example", addr)
	w.newHostAt(addr, w.ca.leaf(t, "b.example"), 443, nil)
	_, err := w.handshake("a.example", "a.example")
	var wrong x509.HostnameError
	if !errors.As(err, &wrong) {
		t.Errorf("%v", err)
	}
}
