package upstream

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type handler = func(w dns.ResponseWriter, r *dns.Msg)

// zone is a DNS server on loopback. Either transport may be missing.
type zone struct {
	addr     netip.AddrPort
	udp, tcp atomic.Int64 // queries
	conns    atomic.Int64 // accepted
}

// serve starts a server for UDP and TCP.
func serve(t testing.TB, answer handler) *zone {
	t.Helper()
	return start(t, answer, answer, nil)
}

// start starts a server, without a transport whose handler is nil. With certificate, TCP uses TLS.
func start(t testing.TB, udp, tcp handler, certificate *tls.Certificate) *zone {
	t.Helper()
	pc, ln := ports(t)
	z := &zone{addr: netip.MustParseAddrPort(pc.LocalAddr().String())}
	if udp == nil {
		pc.Close()
	} else {
		z.run(t, &dns.Server{PacketConn: pc, Handler: counted(&z.udp, udp)})
	}
	if tcp == nil {
		ln.Close()
	} else {
		ln = counting{ln, &z.conns}
		if certificate != nil {
			ln = tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{*certificate}})
		}
		z.run(t, &dns.Server{Listener: ln, Handler: counted(&z.tcp, tcp)})
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

type counting struct {
	net.Listener
	n *atomic.Int64
}

func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.n.Add(1)
	}
	return conn, err
}

func counted(n *atomic.Int64, h handler) dns.Handler {
	return dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		n.Add(1)
		h(w, r)
	})
}

func (z *zone) run(t testing.TB, s *dns.Server) {
	t.Helper()
	up, done := make(chan struct{}), make(chan error, 1)
	s.NotifyStartedFunc = func() { close(up) }
	go func() { done <- s.ActivateAndServe() }()
	<-up
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.ShutdownContext(ctx)
		<-done
	})
}

func (z *zone) server(p Proto) Server { return Server{Proto: p, Addr: z.addr} }

// client returns a client of the servers, with long timeouts for a slow machine, for tests in which no server fails.
func client(t testing.TB, o Options, servers ...Server) *Client {
	t.Helper()
	c := New(servers, o)
	t.Cleanup(c.Close)
	return c
}

func rrs(t testing.TB, lines ...string) (out []dns.RR) {
	t.Helper()
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		check(t, err)
		out = append(out, rr)
	}
	return out
}

// says answers every query with these records, whatever their owners.
func says(answer ...dns.RR) handler {
	return func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(r)
		m.Answer, m.Compress = answer, true
		w.WriteMsg(m)
	}
}

// code answers with an rcode.
func code(rcode int) handler {
	return func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg)
		m.SetRcode(r, rcode)
		w.WriteMsg(m)
	}
}

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	check(t, err)
	cert, err := x509.ParseCertificate(der)
	check(t, err)
	return &authority{cert, key}
}

func (a *authority) roots() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// issue issues a certificate with the given lifetime for names and addresses.
func (a *authority) issue(t testing.TB, life time.Duration, names []string, ips ...net.IP) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: names, IPAddresses: ips,
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(life),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	check(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func texts[T fmt.Stringer](list []T) (out []string) {
	for _, x := range list {
		out = append(out, x.String())
	}
	return out
}
