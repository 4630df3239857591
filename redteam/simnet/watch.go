package simnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// watcher reads every frame that arrives on an interface.
type watcher struct {
	log   *log
	where Where
	file  *os.File
	skip  []int // interfaces that it ignores
	// minds reports whether a received packet is a sighting.
	minds func(packet) bool
}

// watch starts the watchers: the attacker's interface, the wire, and all other interfaces of the host.
func (n *Network) watch() error {
	anything := func(p packet) bool { return !p.neighbourly() }
	uninvited := func(p packet) bool { return anything(p) && !isService(p) }
	noStrays := func(minds func(packet) bool) func(packet) bool {
		return func(p packet) bool { return minds(p) && !strays(p) }
	}
	return errors.Join(
		n.watchOn(n.spaces.rest, AtAttacker, "rest0", nil, noStrays(anything)),
		n.watchOn(n.spaces.world, OnWire, "up0", nil, noStrays(uninvited)),
		n.watchOn(n.spaces.site, AtHost, "", []string{"lo", "site0"}, uninvited),
	)
}

func (n *Network) watchOn(s *space, where Where, name string, skip []string, minds func(packet) bool) error {
	t := &watcher{log: &n.log, where: where, minds: minds}
	index := 0
	err := s.do(func() error {
		if name != "" {
			l, err := net.InterfaceByName(name)
			if err != nil {
				return err
			}
			index = l.Index
		}
		for _, other := range skip {
			l, err := net.InterfaceByName(other)
			if err != nil {
				return err
			}
			t.skip = append(t.skip, l.Index)
		}
		return t.open(index)
	})
	if err != nil {
		return fmt.Errorf("watch %s: %w", where, err)
	}
	n.services.run(t.file, t.run)
	return nil
}

// open makes the packet socket; 0 means all interfaces. The socket receives nothing before it is bound.
func (t *watcher) open(index int) error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	t.file = os.NewFile(uintptr(fd), "packets")
	all := uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8 // network order
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}),
	)
	if err != nil {
		return errors.Join(err, t.file.Close())
	}
	return nil
}

// run reads until the socket is closed.
func (t *watcher) run() {
	conn, err := t.file.SyscallConn()
	if err != nil {
		return // closed before it began
	}
	buf := make([]byte, 1<<16)
	for {
		var n int
		var from unix.Sockaddr
		var failed error
		err := conn.Read(func(fd uintptr) bool {
			n, from, failed = unix.Recvfrom(int(fd), buf, 0)
			return failed != unix.EAGAIN
		})
		if err != nil {
			return
		}
		t.countLost(conn.Control)
		if failed != nil {
			continue // ENETDOWN: an interface was removed
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && slices.Contains(t.skip, ll.Ifindex) {
			continue
		}
		t.take(buf[:n])
	}
}

func (t *watcher) take(frame []byte) {
	p := parse(frame)
	if t.minds(p) {
		t.log.note(Sighting{
			Time: time.Now(), Where: t.where, Proto: p.proto, Src: p.src, Dst: p.dst,
			Text: string(p.payload[:min(len(p.payload), 512)]),
		})
	}
}

// countLost adds the packets that the kernel dropped because the socket's buffer was full. Reading the counter resets it.
func (t *watcher) countLost(control func(func(uintptr)) error) {
	control(func(fd uintptr) {
		if s, err := unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil && s.Drops > 0 {
			t.log.lose(uint64(s.Drops))
		}
	})
}

// strays reports whether a packet is a service's answer to an address of a sandbox's direct link. When custody is killed,
// the address translation of its direct flows ends: a packet to an allowed host can leave with an untranslated source,
// or an answer can arrive when the link is gone. The host then routes the answer back over the wire to the attacker. It
// contains only what the service sent.
func strays(p packet) bool {
	src, dst := p.src.Addr(), p.dst.Addr()
	return (hosts4.Contains(src) || hosts6.Contains(src)) && (cables4.Contains(dst) || cables6.Contains(dst))
}

// isService reports whether a packet from the host goes to a service of the network, on a port that a policy of the
// suite may name.
func isService(p packet) bool {
	dst := p.dst.Addr()
	port := p.dst.Port()
	switch {
	case p.fragment:
		return false
	case dst == Resolver4.Addr() || dst == Resolver6.Addr():
		return port == 53 || p.proto == "tcp" && port == 853 || p.refuses == Resolver4 || p.refuses == Resolver6
	case dst == Quiet4 || dst == Quiet6:
		return echoes(p)
	case dst == Direct4 || dst == Direct6:
		return echoes(p) || webs(p) || refusesEcho(p)
	case many4.Contains(dst):
		return p.proto == "tcp" && port == 7000 || webs(p)
	case hosts4.Contains(dst) || hosts6.Contains(dst):
		return webs(p)
	}
	return false
}

func echoes(p packet) bool {
	return p.proto == "tcp" && p.dst.Port() == 7000 || p.proto == "udp" && p.dst.Port() == 7001
}

// refusesEcho reports whether a packet is the host's ICMP refusal of an answer of the UDP echo. When custody was killed,
// an answer in flight finds no socket.
func refusesEcho(p packet) bool {
	return p.refuses == netip.AddrPortFrom(p.dst.Addr(), 7001) && p.refuser.Addr() == p.src.Addr()
}

func webs(p packet) bool { return p.proto == "tcp" && (p.dst.Port() == 80 || p.dst.Port() == 443) }
