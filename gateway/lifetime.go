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

// lifetime manages the end of a connection: its sockets, and the goroutines that dial or send requests.
//
//	id == "" -- recorded as open --> open -- kill, closeAll --> over
type lifetime struct {
	guest   *net.TCPConn
	cancel  context.CancelFunc
	helpers sync.WaitGroup // dials and HTTP/2 requests

	mu       sync.Mutex // guards the fields below
	id       string     // of the flow; empty until it is open
	rule     string     // that allowed the flow
	gen      uint32
	shown    uint64           // seq of the event of the opening or the refusal
	peers    []netip.AddrPort // candidates, in order; the first is in the event of the opening
	peer     netip.AddrPort   // the one that was reached
	trying   map[netip.AddrPort]bool
	blind    bool // spliced: its contents are not inspected
	requests map[*netpolicy.Request]bool
	sockets  map[*net.TCPConn]bool // to peers
	over     bool                  // no socket is added after this
	ended    string                // the gateway's reason for ending it; empty: none
	revoked  *netpolicy.Verdict    // the policy's reason for ending it
}

// kill ends the connection with RST on all sides. It is safe for concurrent use.
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

// wasEnded reports whether the gateway ended the connection.
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

// idle returns for how long no byte has been transferred, as the kernel counts it.
func (l *lifetime) idle() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	quiet := quietFor(l.guest)
	for s := range l.sockets {
		quiet = min(quiet, quietFor(s))
	}
	return quiet
}

// enter adds a helper to the connection, unless the connection has ended.
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

// adopt adds a socket to the connection, to be closed with it.
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

// show stores the seq of the event that describes the connection.
func (l *lifetime) show(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown == 0 {
		l.shown = seq
	}
}

// release removes a request that has ended.
func (l *lifetime) release(req *netpolicy.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.requests, req)
}

// pass copies one direction until its end, in the kernel: ReadFrom between TCP connections is splice(2). It passes an
// end on as an end, and an error as a reset.
func (l *lifetime) pass(to, from *net.TCPConn) {
	if _, err := to.ReadFrom(from); err != nil {
		l.kill("one side reset the connection")
		return
	}
	_ = to.CloseWrite() // fails only if that side has disconnected, which its own direction detects
}

func quietFor(t *net.TCPConn) time.Duration {
	info, ok := tcpInfo(t)
	if !ok {
		return 0 // a closed socket is not idle
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

// tcpInfo returns the kernel's information on a socket; ok is false if the socket is closed.
func tcpInfo(t *net.TCPConn) (info *unix.TCPInfo, ok bool) {
	raw, err := t.SyscallConn()
	if err != nil {
		return nil, false
	}
	failed := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	return info, failed == nil && err == nil
}
