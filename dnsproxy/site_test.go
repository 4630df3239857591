package dnsproxy

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/dnsproxy/upstream"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/redact"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const testRun = "r-test"

// site is one sandbox's resolver as in production: a real record on a disk, a real upstream client, and sockets on
// loopback.
//
//	test --UDP, TCP--> Server --UDP, TCP--> upstream servers that the test made
//	                     |  \--> table (Names)
//	                     +--> audit.Recorder --> audit/wal --> faulty (a disk)
type site struct {
	*Server
	live  netpolicy.Live
	names *table
	dir   string
	disk  *faulty
	log   *wal.Log
	addr  string
	stop  func() error // ends Serve and waits for it
}

// newSite serves with the rules, given as in "name mode port range...".
func newSite(t testing.TB, c Config, rules ...netpolicy.Rule) *site {
	t.Helper()
	s := &site{dir: filepath.Join(t.TempDir(), testRun), disk: &faulty{}}
	s.live.Set(policy(t, rules...))
	rec := s.record(t)
	c.Live, c.Run = &s.live, testRun
	if c.Recorder == nil {
		c.Recorder = rec
	}
	switch names := c.Names.(type) {
	case nil:
		s.names = newTable()
		c.Names = s.names
	case *table:
		s.names = names
	case *revoking:
		s.names = names.table
	}
	s.names.live = &s.live
	if c.Upstream == nil {
		c.Upstream = upstream.New(nil, upstream.Options{})
	}
	s.Server = New(c)
	s.serve(t)
	return s
}

func (s *site) record(t testing.TB) Recorder {
	t.Helper()
	skey, _, err := note.GenerateKey(rand.Reader, "custody-test")
	check(t, err)
	signer, err := note.NewSigner(skey)
	check(t, err)
	s.log, err = wal.Create(s.dir, wal.Options{Run: testRun, Sealer: statement.NewSealer(signer, statement.Facts{}), FS: s.disk, Retry: time.Millisecond})
	check(t, err)
	t.Cleanup(func() {
		s.disk.full.Store(false)
		check(t, s.log.Close(context.Background(), wal.Sealed))
	})
	return recorder{audit.NewRecorder(s.log, redact.New([]byte("0123456789abcdef0123456789abcdef"))), s.log}
}

// recorder is a real recorder, with its log for Sync.
type recorder struct {
	*audit.Recorder
	*wal.Log
}

func (s *site) serve(t testing.TB) {
	t.Helper()
	pc, ln := ports(t)
	s.addr = pc.LocalAddr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, pc, ln) }()
	s.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { check(t, s.stop()) })
}

// records returns the payloads in the record.
func (s *site) records(t testing.TB) (out []audit.Record) {
	t.Helper()
	paths, err := wal.Segments(s.dir)
	check(t, err)
	for _, path := range paths {
		for f, err := range wal.ReadSegment(path) {
			check(t, err)
			var r audit.Record
			check(t, json.Unmarshal(f.Bytes, &r))
			out = append(out, r)
		}
	}
	return out
}

// lastDNS returns the last dns event in the record.
func (s *site) lastDNS(t testing.TB) audit.DNS {
	t.Helper()
	all := s.records(t)
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].DNS != nil {
			return *all[i].DNS
		}
	}
	t.Fatal("no dns event in the record")
	return audit.DNS{}
}

// ask queries over UDP with EDNS.
func (s *site) ask(t testing.TB, name string, qtype uint16) *dns.Msg {
	t.Helper()
	return s.askOver(t, "udp", name, qtype)
}

func (s *site) askOver(t testing.TB, network, name string, qtype uint16) *dns.Msg {
	t.Helper()
	var m dns.Msg
	m.SetQuestion(dns.Fqdn(name), qtype)
	m.SetEdns0(1232, false)
	r, err := s.exchange(network, &m)
	if err != nil {
		t.Fatalf("ask %s %s: %v", name, dns.Type(qtype), err)
	}
	return r
}

func (s *site) exchange(network string, m *dns.Msg) (*dns.Msg, error) {
	r, _, err := (&dns.Client{Net: network, Timeout: 10 * time.Second}).Exchange(m, s.addr)
	return r, err
}

// addrs returns the addresses in a reply.
func addrs(t testing.TB, m *dns.Msg) (out []netip.Addr) {
	t.Helper()
	for _, rr := range m.Answer {
		var a netip.Addr
		switch rr := rr.(type) {
		case *dns.A:
			a, _ = netip.AddrFromSlice(rr.A.To4())
		case *dns.AAAA:
			a, _ = netip.AddrFromSlice(rr.AAAA)
		default:
			t.Fatalf("not an address record: %s", rr)
		}
		out = append(out, a)
	}
	return out
}

// extended returns the extended error of a reply.
func extended(m *dns.Msg) (code uint16, text string) {
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if e, ok := o.(*dns.EDNS0_EDE); ok {
				return e.InfoCode, e.ExtraText
			}
		}
	}
	return 0, ""
}

func policy(t testing.TB, rules ...netpolicy.Rule) *netpolicy.Policy {
	t.Helper()
	p, err := netpolicy.New(rules)
	check(t, err)
	return p
}

func gatewayRule(t testing.TB, pattern string) netpolicy.Rule {
	t.Helper()
	p, err := netpolicy.ParsePattern(pattern)
	check(t, err)
	return netpolicy.Rule{Pattern: p}
}

func directRule(t testing.TB, pattern string, ranges ...string) netpolicy.Rule {
	t.Helper()
	r := gatewayRule(t, pattern)
	r.Mode = netpolicy.Direct
	for _, s := range ranges {
		r.Addresses = append(r.Addresses, netip.MustParsePrefix(s))
	}
	return r
}

// table is the sandbox's table of names.
type table struct {
	mu     sync.Mutex // guards the fields below
	byName map[string]netip.Addr
	opened []opened
	fail   error          // the error of Open
	onOpen func(o opened) // called by Open, before it returns
	live   *netpolicy.Live
}

type opened struct {
	name  string
	addr  netip.Addr
	via   netpolicy.Mode
	until time.Time
	seq   uint64
}

func newTable() *table { return &table{byName: map[string]netip.Addr{}} }

func (n *table) Synthetic(name string) (netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, ok := n.byName[name]; ok {
		return a, nil
	}
	if len(n.byName) >= 1<<15 {
		return netip.Addr{}, errors.New("all synthetic addresses are in use")
	}
	b := netpolicy.FirstSynthetic.As4()
	i := len(n.byName)
	a := netip.AddrFrom4([4]byte{b[0], b[1], b[2] + byte(i>>8), byte(i)})
	n.byName[name] = a
	return a, nil
}

func (n *table) Open(name string, addr netip.Addr, via netpolicy.Mode, until time.Time, seq uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	o := opened{name, addr, via, until, seq}
	if n.onOpen != nil {
		n.onOpen(o)
	}
	if n.fail != nil {
		return n.fail
	}
	n.opened = append(n.opened, o)
	return nil
}

func (n *table) all() []opened {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]opened(nil), n.opened...)
}

// faulty is a disk that can be full.
type faulty struct {
	wal.Disk
	full atomic.Bool
}

func (f *faulty) Create(path string) (wal.File, error) {
	file, err := f.Disk.Create(path)
	return faultyFile{file, f}, err
}

type faultyFile struct {
	wal.File
	disk *faulty
}

func (f faultyFile) Sync() error {
	if f.disk.full.Load() {
		return syscall.ENOSPC
	}
	return f.File.Sync()
}

// zone is a DNS server on loopback, over UDP and TCP, with the test's handler.
type zone struct {
	addr  netip.AddrPort
	asked atomic.Int64
}

func newZone(t testing.TB, answer func(w dns.ResponseWriter, r *dns.Msg)) *zone {
	t.Helper()
	pc, ln := ports(t)
	z := &zone{addr: netip.MustParseAddrPort(pc.LocalAddr().String())}
	h := dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		z.asked.Add(1)
		answer(w, r)
	})
	for _, s := range []*dns.Server{{PacketConn: pc, Handler: h}, {Listener: ln, Handler: h}} {
		up := make(chan struct{})
		s.NotifyStartedFunc = func() { close(up) }
		done := make(chan error, 1)
		go func() { done <- s.ActivateAndServe() }()
		<-up
		t.Cleanup(func() { s.Shutdown(); <-done })
	}
	return z
}

// ports returns a UDP and a TCP socket on the same port.
func ports(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 100 {
		pc, err := net.ListenPacket("udp", "127.0.0.1:0")
		check(t, err)
		ln, err := net.Listen("tcp", pc.LocalAddr().String())
		if err == nil {
			return pc, ln
		}
		pc.Close()
	}
	t.Fatal("no port is free for both UDP and TCP")
	return nil, nil
}

// client returns an upstream client of the zone.
func (z *zone) client(t testing.TB) *upstream.Client {
	c := upstream.New([]upstream.Server{{Proto: upstream.UDP, Addr: z.addr}}, upstream.Options{Attempt: time.Second, Total: 3 * time.Second})
	t.Cleanup(c.Close)
	return c
}

// records answers each question with records in zone file form, by name and type, such as "a.test. A". All other names
// are NXDOMAIN.
func records(t testing.TB, zone map[string][]string) func(dns.ResponseWriter, *dns.Msg) {
	t.Helper()
	parsed := map[string][]dns.RR{}
	for key, lines := range zone {
		for _, line := range lines {
			rr, err := dns.NewRR(line)
			check(t, err)
			parsed[key] = append(parsed[key], rr)
		}
	}
	return func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(r)
		q := r.Question[0]
		rrs, ok := parsed[fmt.Sprintf("%s %s", dns.CanonicalName(q.Name), dns.Type(q.Qtype))]
		m.Answer = rrs
		if !ok {
			m.Rcode = dns.RcodeNameError
		}
		if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
			m.Truncate(1232)
		}
		w.WriteMsg(m)
	}
}
