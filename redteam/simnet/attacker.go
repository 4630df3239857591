package simnet

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// Orders is in every response of the attacker, and in no other.
const Orders = "orders from the attacker"

// HostService is in the responses of the canaries on the host.
const HostService = "a service of the host itself"

// AttackerPorts are the TCP ports on which the attacker accepts connections, at every address. Packets to other ports
// are sightings, too.
var AttackerPorts = []uint16{22, 25, 80, 443, 853, 2375, 7000, 8080, 8443}

// serveAttacker starts the attacker's servers: DNS, and one that accepts any protocol over TCP.
func (n *Network) serveAttacker() error {
	z := newZones(&n.log)
	any := netip.AddrPortFrom(netip.IPv6Unspecified(), 53)
	err := errors.Join(n.serveZones(z, n.spaces.rest, any, "udp"), n.serveZones(z, n.spaces.rest, any, "tcp"))
	a := &attacker{log: &n.log, cert: n.ca.evil}
	return errors.Join(err, n.services.listenAll(n.spaces.rest, AttackerPorts, a.answer))
}

// attacker is the attacker's web server.
type attacker struct {
	log  *log
	cert tls.Certificate
}

// answer responds to a request, inside TLS if the client begins it.
func (a *attacker) answer(c net.Conn) {
	c.SetDeadline(time.Now().Add(10 * time.Second))
	r := bufio.NewReader(c)
	if first, err := r.Peek(1); err == nil && first[0] == 0x16 {
		t := tls.Server(readConn{c, r}, &tls.Config{Certificates: []tls.Certificate{a.cert}})
		if err := t.Handshake(); err != nil {
			return
		}
		a.log.visited(c, AtAttacker, "TLS for "+t.ConnectionState().ServerName)
		c, r = t, bufio.NewReader(t)
	}
	req, err := http.ReadRequest(r)
	said := "not HTTP"
	if err == nil {
		said = req.Method + " " + req.Host + req.RequestURI
	}
	a.log.visited(c, AtAttacker, said)
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n", len(Orders)+1, Orders)
}

// readConn reads from r, which has buffered the connection's first bytes.
type readConn struct {
	net.Conn
	r *bufio.Reader
}

func (c readConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// canaries starts servers on the host itself, on all its addresses and its loopback.
func (n *Network) canaries() error {
	return n.services.listenAll(n.spaces.site, CanaryPorts, func(c net.Conn) {
		c.SetDeadline(time.Now().Add(200 * time.Millisecond))
		said := make([]byte, 512)
		size, _ := c.Read(said) // a connection without data is a sighting too
		n.log.visited(c, AtHost, "a canary received: "+string(said[:size]))
		c.SetDeadline(time.Now().Add(time.Second))
		fmt.Fprintf(c, "%s\r\n", HostService)
	})
}
