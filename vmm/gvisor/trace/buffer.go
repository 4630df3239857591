package trace

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/privsep"
)

// sendBuffer is the size in bytes of the peer's send buffer. A message that does not fit is never sent.
const sendBuffer = 2 * MaxMessage

// Enlarge sets the size of the peer's send buffer. The kernel's default is smaller than the largest message, runsc does not
// change it, and only the sender's buffer counts. It needs privileges, and is called before Accept: conn's peer must wait for the
// handshake.
func Enlarge(conn *net.UnixConn) error {
	if err := enlarge(conn); err != nil {
		return fmt.Errorf("trace sink: enlarge the send buffer: %w", err)
	}
	return nil
}

func enlarge(conn *net.UnixConn) error {
	peer, err := privsep.PeerOf(conn)
	if err != nil {
		return err
	}
	process, err := unix.PidfdOpen(peer.PID, 0)
	if err != nil {
		return fmt.Errorf("open the peer's process: %w", err)
	}
	defer unix.Close(process)
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", peer.PID))
	if err != nil {
		return err
	}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if found, err := enlargeEnd(process, n, conn.LocalAddr().String()); found || err != nil {
			return err
		}
	}
	return errors.New("the peer's end of the connection was not found")
}

// enlargeEnd sets the size of the send buffer if the descriptor is a socket that is connected to the address.
func enlargeEnd(process, descriptor int, address string) (found bool, err error) {
	fd, err := unix.PidfdGetfd(process, descriptor, 0)
	if err != nil {
		return false, nil // it was closed meanwhile
	}
	defer unix.Close(fd)
	to, err := unix.Getpeername(fd)
	if err != nil {
		return false, nil // not a connected socket
	}
	if end, ok := to.(*unix.SockaddrUnix); !ok || end.Name != address {
		return false, nil
	}
	return true, os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer))
}
