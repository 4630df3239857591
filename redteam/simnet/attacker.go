package simnet

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Orders is in every answer of the attacker's, and nowhere else.
const Orders = "orders from the attacker"

// HostService is what the canaries on the host say.
const HostService = "a service of the host itself"

// AttackerPorts are the TCP ports on which the attacker answers, at every
// address. What comes to other ports is seen, too.
var AttackerPorts = []uint16{22, 25, 80, 443, 853, 2375, 7000, 8080, 8443}

// serveAttacker starts the attacker's servers: DNS, and whatever else is said over TCP.
func (w *World) serveAttacker() error {
	z := &zones{world: w, rebinding: Rebinding(), turn: map[string]int{}}
	any := netip.AddrPortFrom(netip.IPv6Unspecified(), 53)
	err := errors.Join(w.dnsOver(w.rest, any, "udp", z), w.dnsOver(w.rest, any, "tcp", z))
	return errors.Join(err, w.listenAll(w.rest, AttackerPorts, w.attack))
}

// attack answers like a web server, inside TLS if the other side begins it.
func (w *World) attack(c net.Conn) {
	c.SetDeadline(time.Now().Add(10 * time.Second))
	r := bufio.NewReader(c)
	if first, err := r.Peek(1); err == nil && first[0] == 0x16 {
		t := tls.Server(readConn{c, r}, &tls.Config{Certificates: []tls.Certificate{w.ca.evil}})
		if err := t.Handshake(); err != nil {
			return
		}
		w.visited(c, AtAttacker, "TLS for "+t.ConnectionState().ServerName)
		c, r = t, bufio.NewReader(t)
	}
	req, err := http.ReadRequest(r)
	said := "something else than HTTP"
	if err == nil {
		said = req.Method + " " + req.Host + req.RequestURI
	}
	w.visited(c, AtAttacker, said)
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n", len(Orders)+1, Orders)
}

// readConn reads what was looked at already.
type readConn struct {
	net.Conn
	r *bufio.Reader
}

func (c readConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// canaries listen on the host itself, on all its addresses and its loopback.
func (w *World) canaries() error {
	return w.listenAll(w.site, CanaryPorts, func(c net.Conn) {
		c.SetDeadline(time.Now().Add(200 * time.Millisecond))
		said := make([]byte, 512)
		n, _ := c.Read(said) // to have come is enough
		w.visited(c, AtHost, "a canary received: "+string(said[:n]))
		c.SetDeadline(time.Now().Add(time.Second))
		fmt.Fprintf(c, "%s\r\n", HostService)
	})
}

func (w *World) visited(c net.Conn, where Where, text string) {
	w.note(Sighting{Where: where, Proto: "tcp", Src: addrOf(c.RemoteAddr()), Dst: addrOf(c.LocalAddr()), Text: text})
}

// listenAll serves on ports of all addresses of a space.
func (w *World) listenAll(s *space, ports []uint16, answer func(net.Conn)) error {
	return s.do(func() error {
		for _, port := range ports {
			l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
			if err != nil {
				return err
			}
			w.serve(l, answer)
		}
		return nil
	})
}

// serve answers on a listener until Close, which also ends its connections.
func (w *World) serve(l net.Listener, answer func(net.Conn)) {
	s := &server{Listener: l, open: map[net.Conn]bool{}}
	w.own(s)
	w.work.Go(func() { s.run(answer) })
}

type server struct {
	net.Listener
	talks sync.WaitGroup

	mu    sync.Mutex // guards open
	open  map[net.Conn]bool
	ended bool
}

func (s *server) run(answer func(net.Conn)) {
	defer s.talks.Wait()
	for {
		c, err := s.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.ended {
			c.Close()
		} else {
			s.open[c] = true
			s.talks.Go(func() { s.talk(c, answer) })
		}
		s.mu.Unlock()
	}
}

func (s *server) talk(c net.Conn, answer func(net.Conn)) {
	defer func() {
		c.Close()
		s.mu.Lock()
		delete(s.open, c)
		s.mu.Unlock()
	}()
	answer(c)
}

// Close ends the listener and its connections.
func (s *server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for c := range s.open {
		c.Close()
	}
	return s.Listener.Close()
}
