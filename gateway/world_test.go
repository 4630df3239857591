package gateway

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/dnsproxy/upstream"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/redact"
)

// world is a sandbox with its gateway, and a simulated internet.
type world struct {
	testing.TB
	*Gateway
	live  *netpolicy.Live
	log   *memory
	zone  *zone
	ca    *testCA
	roots *x509.CertPool
	self  sync.Map // of netip.Addr: the host's own
	names *nameTable
	red   *redact.Redactor // the record's
	cfg   Config
}

var lastAddr atomic.Uint32 // of the internet, so that tests do not share addresses

// newAddr returns an unused address of the internet.
func newAddr() netip.Addr {
	n := lastAddr.Add(1)
	return netip.AddrFrom4([4]byte{93, 184, byte(n >> 8), byte(n)})
}

// newWorld makes a world with a policy. The gateway listens on all ports that the policy names, and on 443.
func newWorld(tb testing.TB, rules []netpolicy.Rule, change ...func(*Config)) *world {
	tb.Helper()
	w := &world{TB: tb, live: &netpolicy.Live{}, log: &memory{}, zone: newZone(tb), ca: newCA(tb), names: newNameTable(),
		red: redact.New([]byte("0123456789abcdef0123456789abcdef"))}
	w.roots = w.ca.pool()
	policy := w.policy(rules...)
	w.live.Set(policy)
	server, err := upstream.ParseServer("udp://" + w.zone.addr)
	if err != nil {
		tb.Fatal(err)
	}
	client := upstream.New([]upstream.Server{server}, upstream.Options{})
	tb.Cleanup(client.Close)
	var ids atomic.Int64
	w.cfg = Config{
		Run: "r-test", Live: w.live, Names: w.names, Resolver: client, Roots: w.roots, Meter: fixedMeter{},
		Recorder: audit.NewRecorder(w.log, w.red), Redactor: w.red,
		Self:   func(a netip.Addr) bool { _, is := w.self.Load(a); return is },
		NextID: func() string { return fmt.Sprintf("f-%d", ids.Add(1)) },
	}
	var opened []string
	for _, r := range policy.Rules() {
		if r.HTTP != nil {
			opened = append(opened, r.Pattern.String())
		}
	}
	if len(opened) > 0 {
		if w.cfg.Authority, err = NewAuthority("r-test", opened); err != nil {
			tb.Fatal(err)
		}
	}
	for _, f := range change {
		f(&w.cfg)
	}
	w.Gateway = New(w.cfg)
	w.serve(append(policy.TCPPorts(), 443)...)
	return w
}

// lastSynthetic separates worlds: each listens on its own address in the synthetic range.
var lastSynthetic atomic.Uint32

func (w *world) serve(ports ...uint16) {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	slices.Sort(ports)
	for _, port := range slices.Compact(ports) {
		var l net.Listener
		inSandbox(w, func() (err error) {
			l, err = net.Listen("tcp4", netip.AddrPortFrom(w.names.base, port).String())
			return err
		})
		serving.Go(func() {
			if err := w.Serve(ctx, l); err != nil {
				w.Error(err)
			}
		})
	}
	w.Cleanup(func() {
		cancel()
		serving.Wait()
		w.Gateway.Close()
	})
}

func (w *world) policy(rules ...netpolicy.Rule) *netpolicy.Policy {
	w.Helper()
	p, err := netpolicy.New(rules)
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// rule makes a rule for a pattern; change may set more fields.
func rule(pattern string, change ...func(*netpolicy.Rule)) netpolicy.Rule {
	p, err := netpolicy.ParsePattern(pattern)
	if err != nil {
		panic(err)
	}
	r := netpolicy.Rule{Pattern: p}
	for _, f := range change {
		f(&r)
	}
	return r
}

func ports(numbers ...uint16) func(*netpolicy.Rule) {
	return func(r *netpolicy.Rule) {
		for _, n := range numbers {
			r.Ports = append(r.Ports, netpolicy.Port{Proto: "tcp", Number: n})
		}
	}
}

func withHTTP(methods, paths []string) func(*netpolicy.Rule) {
	return func(r *netpolicy.Rule) { r.HTTP = &netpolicy.HTTP{Methods: methods, Paths: paths} }
}

func addresses(cidrs ...string) func(*netpolicy.Rule) {
	return func(r *netpolicy.Rule) {
		for _, c := range cidrs {
			r.Addresses = append(r.Addresses, netip.MustParsePrefix(c))
		}
	}
}

// nameTable gives every name of a world its one listening address: the tests use one name at a time, and dial it from an own
// source address.
type nameTable struct {
	base netip.Addr // where the listeners are
	mu   sync.Mutex
	name string
}

func newNameTable() *nameTable {
	n := lastSynthetic.Add(1)
	return &nameTable{base: netip.AddrFrom4([4]byte{198, 18, byte(1 + n>>8), byte(n)})}
}

func (b *nameTable) set(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.name = name
}

func (b *nameTable) Name(a netip.Addr) (string, uint64, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.name, 7, a == b.base && b.name != ""
}

type fixedMeter struct{}

func (fixedMeter) Count(src, dst netip.AddrPort) (out, in, packetsOut, packetsIn uint64) {
	return 1000, 2000, 10, 20
}

// dial connects from inside the sandbox to a port of the synthetic address of name.
func (w *world) dial(name string, port uint16) *net.TCPConn {
	w.Helper()
	w.names.set(name)
	var c net.Conn
	inSandbox(w, func() (err error) {
		c, err = net.Dial("tcp4", netip.AddrPortFrom(w.names.base, port).String())
		return err
	})
	w.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c.(*net.TCPConn)
}

// say sends text to name and returns the complete response.
func (w *world) say(name string, port uint16, text string) string {
	w.Helper()
	c := w.dial(name, port)
	if _, err := io.WriteString(c, text); err != nil {
		w.Fatal(err)
	}
	return hear(c)
}

// refused sends text to name and reads one response, which must be a refusal.
func (w *world) refused(name string, port uint16, text string) (status int, reason string) {
	w.Helper()
	c := w.dial(name, port)
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		w.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		w.Errorf("%.100q: %v", text, err)
		return 0, ""
	}
	return resp.StatusCode, w.refusalOf(resp)
}

func hear(c io.Reader) string {
	b, _ := io.ReadAll(c)
	return string(b)
}

// client returns an HTTP client inside the sandbox that connects to name, whatever the URL.
func (w *world) client(name string, change ...func(*http.Transport)) *http.Client {
	roots := w.roots
	if w.cfg.Authority != nil {
		roots = x509.NewCertPool()
		roots.AppendCertsFromPEM(w.cfg.Authority.PEM())
	}
	t := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
			ap := netip.MustParseAddrPort("0.0.0.0:" + addr[strings.LastIndexByte(addr, ':')+1:])
			return w.dial(name, ap.Port()), nil
		},
		DisableCompression: true,
	}
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	for _, f := range change {
		f(t)
	}
	w.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func withH2(t *http.Transport) {
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP2(true)
}

// host is a web server of the internet.
type host struct {
	addr netip.Addr
	hits atomic.Int64 // connections
	seen chan string  // request line and host of each request
}

// newHost starts a server for name at addr, and adds the name to the DNS. It uses TLS on port 443 and plain HTTP on
// others.
func (w *world) newHost(name string, port uint16, handler http.Handler) *host {
	w.Helper()
	h := w.newHostAt(newAddr(), w.ca.leaf(w, name), port, handler)
	w.zone.set(name, h.addr)
	return h
}

// newHostFor is newHost on port 443 with only some protocols of HTTP.
func (w *world) newHostFor(name string, protocols []string, handler http.Handler) *host {
	w.Helper()
	h := w.newHostAt(newAddr(), w.ca.leaf(w, name), 443, handler, protocols...)
	w.zone.set(name, h.addr)
	return h
}

func (w *world) newHostAt(addr netip.Addr, cert *tls.Certificate, port uint16, handler http.Handler, protocols ...string) *host {
	w.Helper()
	h := &host{addr: addr, seen: make(chan string, 1000)}
	l, err := net.Listen("tcp", netip.AddrPortFrom(addr, port).String())
	if err != nil {
		w.Fatal(err)
	}
	server := &http.Server{
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			select {
			case h.seen <- r.Method + " " + r.RequestURI + " " + r.Host:
			default:
			}
			if handler != nil {
				handler.ServeHTTP(rw, r)
				return
			}
			fmt.Fprintf(rw, "hello from %s", r.Host)
		}),
		ErrorLog: log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				h.hits.Add(1)
			}
		},
		TLSConfig: &tls.Config{NextProtos: protocols},
	}
	if len(protocols) > 0 && !slices.Contains(protocols, "h2") {
		server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){} // no HTTP/2
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if cert == nil || port != 443 {
			_ = server.Serve(l)
			return
		}
		server.TLSConfig.Certificates = []tls.Certificate{*cert}
		_ = server.ServeTLS(l, "", "")
	})
	w.Cleanup(func() { server.Close(); serving.Wait() })
	return h
}

// zone is an authoritative DNS server.
type zone struct {
	addr  string
	mu    sync.Mutex
	names map[string][]netip.Addr
	asked []string
}

func newZone(tb testing.TB) *zone {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	z := &zone{addr: pc.LocalAddr().String(), names: map[string][]netip.Addr{}}
	s := &dns.Server{PacketConn: pc, Handler: z}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.ActivateAndServe() })
	tb.Cleanup(func() { pc.Close(); serving.Wait() })
	return z
}

func (z *zone) set(name string, addrs ...netip.Addr) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.names[name] = addrs
}

func (z *zone) questions() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return slices.Clone(z.asked)
}

func (z *zone) ServeDNS(rw dns.ResponseWriter, q *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	m := new(dns.Msg).SetReply(q)
	name := strings.ToLower(strings.TrimSuffix(q.Question[0].Name, "."))
	z.asked = append(z.asked, name)
	addrs, ok := z.names[name]
	if !ok {
		m.Rcode = dns.RcodeNameError
	}
	for _, a := range addrs {
		hdr := dns.RR_Header{Name: q.Question[0].Name, Class: dns.ClassINET, Rrtype: q.Question[0].Qtype}
		switch {
		case a.Is4() && hdr.Rrtype == dns.TypeA:
			m.Answer = append(m.Answer, &dns.A{Hdr: hdr, A: a.AsSlice()})
		case a.Is6() && hdr.Rrtype == dns.TypeAAAA:
			m.Answer = append(m.Answer, &dns.AAAA{Hdr: hdr, AAAA: a.AsSlice()})
		}
	}
	_ = rw.WriteMsg(m)
}

// testCA signs the internet's certificates.
type testCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA(tb testing.TB) *testCA {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "internet"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return &testCA{cert, key}
}

func (a *testCA) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func (a *testCA) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *testCA) leaf(tb testing.TB, name string, change ...func(*x509.Certificate)) *tls.Certificate {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	for _, f := range change {
		f(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		tb.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// memory is a log in memory whose methods can be made to fail.
type memory struct {
	mu     sync.Mutex
	events []audit.Event
	fail   atomic.Bool
}

var errDisk = errors.New("the disk is full")

func (m *memory) Append(_ context.Context, s redact.Sealed) (uint64, error) {
	if m.fail.Load() {
		return 0, errDisk
	}
	var ev audit.Event
	if err := json.Unmarshal(s.Bytes(), &ev); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, ev)
	return uint64(len(m.events)), nil
}

func (m *memory) Sync(context.Context, uint64) error {
	if m.fail.Load() {
		return errDisk
	}
	return nil
}

func (m *memory) all() []audit.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]audit.Event(nil), m.events...)
}

// flow waits for a flow event of a state and returns the first.
func (w *world) flow(state audit.FlowState) *audit.Flow {
	w.Helper()
	var found *audit.Flow
	w.until("a flow event "+string(state), func() bool {
		for _, ev := range w.log.all() {
			if ev.Flow != nil && ev.Flow.State == state {
				found = ev.Flow
				return true
			}
		}
		return false
	})
	return found
}

// http waits for the n-th http event.
func (w *world) http(n int) *audit.HTTP {
	w.Helper()
	var list []*audit.HTTP
	w.until(fmt.Sprintf("%d http events", n), func() bool {
		list = nil
		for _, ev := range w.log.all() {
			if ev.HTTP != nil {
				list = append(list, ev.HTTP)
			}
		}
		return len(list) >= n
	})
	return list[n-1]
}

func (w *world) count(state audit.FlowState) (n int) {
	for _, ev := range w.log.all() {
		if ev.Flow != nil && ev.Flow.State == state {
			n++
		}
	}
	return n
}

func (w *world) until(what string, is func() bool) {
	w.Helper()
	for limit := time.Now().Add(time.Minute); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(limit) {
			w.Fatalf("waited in vain for %s; the record: %s", what, w.dump())
		}
	}
}

func (w *world) dump() string {
	var b strings.Builder
	for _, ev := range w.log.all() {
		line, _ := json.Marshal(ev)
		b.WriteString("\n" + string(line))
	}
	return b.String()
}

// refusalOf parses the JSON of a refusal and checks that its seq is that of an event with the same reason.
func (w *world) refusalOf(resp *http.Response) string {
	w.Helper()
	var no struct {
		Error, Reason, Rule, Run string
		Seq                      uint64
	}
	if err := json.NewDecoder(resp.Body).Decode(&no); err != nil {
		w.Fatalf("status %d without the JSON of a refusal: %v", resp.StatusCode, err)
	}
	events := w.log.all()
	if no.Seq == 0 || no.Seq > uint64(len(events)) {
		w.Fatalf("seq %d of %d events", no.Seq, len(events))
	}
	ev := events[no.Seq-1]
	if ev.HTTP == nil || ev.HTTP.Reason != no.Reason || ev.HTTP.Rule != no.Rule || ev.HTTP.Status != resp.StatusCode || no.Run != "r-test" {
		w.Fatalf("the answer %+v is not what the record says at its seq: %+v", no, ev.HTTP)
	}
	return no.Reason
}
