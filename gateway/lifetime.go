package gateway

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/netpolicy"
)

// lifetime is what can end a connection, and what its end closes: its sockets, and the goroutines that dial or carry requests.
//
//	id == "" -- recorded as open --> open -- kill, closeAll --> over
type lifetime struct {
	guest   *net.TCPConn
	cancel  context.CancelFunc
	helpers sync.WaitGroup // dials and requests of HTTP/2

	mu       sync.Mutex // guards what follows
	id       string     // of the flow; empty until it is open
	rule     string     // that opened the flow
	gen      uint32
	shown    uint64           // seq of the event of the opening or the refusal
	peers    []netip.AddrPort // to go to, in order; the first stands in the event of the opening
	peer     netip.AddrPort   // that was reached
	trying   map[netip.AddrPort]bool
	blind    bool // spliced: its contents cannot be seen
	requests map[*netpolicy.Request]bool
	sockets  map[*net.TCPConn]bool // to peers
	over     bool                  // from here on no socket is added
	ended    string                // why the gateway ended it; empty: it did not
	revoked  *netpolicy.Verdict    // why the policy ended it
}

// kill ends the connection with RST on all sides, from any goroutine.
func (l *lifetime) kill(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.killLocked(why)
}

func (l *lifetime) killLocked(why string) {
	if l.over {
		return
	}
	l.over, l.ended = true, why
	l.cancel()
	reset(l.guest)
	for s := range l.sockets {
		reset(s)
	}
}

// wasEnded reports whether the gateway itself ended the connection.
func (l *lifetime) wasEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended != ""
}

func (l *lifetime) closeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.guest.Close()
	for s := range l.sockets {
		s.Close()
	}
}

// idle returns for how long no byte has moved, as the kernel counts it.
func (l *lifetime) idle() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	quiet := quietFor(l.guest)
	for s := range l.sockets {
		quiet = min(quiet, quietFor(s))
	}
	return quiet
}

// enter counts a helper of the connection in, unless that has ended.
func (l *lifetime) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.helpers.Add(1)
	}
	return !l.over
}

func (l *lifetime) candidates() []netip.AddrPort {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peer.IsValid() {
		return []netip.AddrPort{l.peer}
	}
	return l.peers
}

func (l *lifetime) tried(peer netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if peer != l.peer {
		delete(l.trying, peer)
	}
}

// adopt makes a socket part of the connection, to end with it.
func (l *lifetime) adopt(s *net.TCPConn, peer netip.AddrPort) (*peerConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || l.peer.IsValid() && l.peer != peer {
		reset(s)
		return nil, errOver
	}
	l.peer = peer
	l.sockets[s] = true
	return &peerConn{TCPConn: s, of: l}, nil
}

// show notes the event that shows what the connection is.
func (l *lifetime) show(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown == 0 {
		l.shown = seq
	}
}

// release forgets a request that has ended.
func (l *lifetime) release(req *netpolicy.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.requests, req)
}

// pass carries one direction to its end, in the kernel: ReadFrom of a TCP
// connection from another is splice(2). An end is passed on as an end, an error as a reset.
func (l *lifetime) pass(to, from *net.TCPConn) {
	if _, err := to.ReadFrom(from); err != nil {
		l.kill("one side reset the connection")
		return
	}
	_ = to.CloseWrite() // fails only if that side is gone, which its own direction will see
}

func quietFor(t *net.TCPConn) time.Duration {
	info, ok := tcpInfo(t)
	if !ok {
		return 0 // a socket that is closed is not idle
	}
	return time.Duration(min(info.Last_data_recv, info.Last_data_sent)) * time.Millisecond
}

// tcpClosed is TCP_CLOSE of linux/tcp_states.h.
const tcpClosed = 7

func tcpState(t *net.TCPConn) uint8 {
	info, ok := tcpInfo(t)
	if !ok {
		return tcpClosed
	}
	return info.State
}

// tcpInfo asks the kernel about a socket; it is not ok if that is closed here.
func tcpInfo(t *net.TCPConn) (info *unix.TCPInfo, ok bool) {
	raw, err := t.SyscallConn()
	if err != nil {
		return nil, false
	}
	failed := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	return info, failed == nil && err == nil
}
