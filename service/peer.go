package service

import (
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Peer is the process at the other end of a connection, as the kernel names it.
type Peer struct {
	PID int
	UID int
}

// String implements fmt.Stringer.
func (p Peer) String() string { return fmt.Sprintf("user %d (process %d)", p.UID, p.PID) }

// peerOf returns the process that has connected.
func peerOf(c *net.UnixConn) (p Peer, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return p, err
	}
	var cred *unix.Ucred
	if failed := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); failed != nil {
		return p, failed
	}
	if err != nil {
		return p, os.NewSyscallError("getsockopt", err)
	}
	return Peer{PID: int(cred.Pid), UID: int(cred.Uid)}, nil
}

// Limit bounds how many of something there are.
type Limit struct {
	All    int
	OfUser int // of each user
}

// count counts against a limit. It is safe for concurrent use.
type count struct {
	limit Limit

	mu  sync.Mutex // guards the fields below
	all int
	of  map[int]int // by uid
}

func newCount(l Limit) *count { return &count{limit: l, of: map[int]int{}} }

// add reports whether there may be another one of the user.
func (c *count) add(uid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= c.limit.All || c.of[uid] >= c.limit.OfUser {
		return false
	}
	c.all++
	c.of[uid]++
	return true
}

// remove is called once for each add that returned true.
func (c *count) remove(uid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.of[uid]--; c.of[uid] == 0 {
		delete(c.of, uid)
	}
}
