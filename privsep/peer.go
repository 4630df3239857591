package privsep

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Peer is the process at the other end of a connection, as the kernel names it.
type Peer struct {
	PID int
	UID int
}

// String implements fmt.Stringer.
func (p Peer) String() string { return fmt.Sprintf("user %d (process %d)", p.UID, p.PID) }

// PeerOf returns the process that has connected.
func PeerOf(c *net.UnixConn) (p Peer, err error) {
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
