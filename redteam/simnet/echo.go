package simnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// serveEcho starts the echo servers of Direct and Quiet. Requests lists what they receive.
func (n *Network) serveEcho() error {
	e := &echo{log: &n.log}
	var errs []error
	for _, a := range []netip.Addr{Direct4, Direct6, Quiet4, Quiet6} {
		errs = append(errs, n.spaces.world.do(func() error {
			l, err := net.Listen("tcp", netip.AddrPortFrom(a, 7000).String())
			if err != nil {
				return err
			}
			n.services.serve(l, e.answer)
			p, err := net.ListenPacket("udp", netip.AddrPortFrom(a, 7001).String())
			if err != nil {
				return err
			}
			n.services.run(p, func() { e.answerPackets(p) })
			return nil
		}))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("echo: %w", err)
	}
	return nil
}

// echo sends back the data that it receives.
type echo struct{ log *log }

func (e *echo) answer(c net.Conn) {
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		e.note(buf[:n], c.RemoteAddr(), c.LocalAddr())
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (e *echo) answerPackets(p net.PacketConn) {
	buf := make([]byte, 4096)
	for {
		n, from, err := p.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			e.note(buf[:n], from, p.LocalAddr())
			p.WriteTo(buf[:n], from)
		}
	}
}

func (e *echo) note(b []byte, src, dst net.Addr) {
	add(e.log, &e.log.requests, Request{Time: time.Now(), Proto: "echo", Body: string(b), Src: addrOf(src), Dst: addrOf(dst)})
}
