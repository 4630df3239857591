package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
)

// vsockPort is the channel over a virtio socket. The guest listens, and only the host connects: the
// guest accepts no connection of another address.
//
// A snapshot resets open connections. The host that restores the guest connects again, and the guest, which
// has sent READY already, then waits for its Wake on the new connection.
type vsockPort struct {
	listener int
	*os.File // the connection
}

// hasVsock reports whether the machine has a virtio socket.
func hasVsock() bool {
	devices, err := filepath.Glob("/sys/bus/virtio/drivers/vmw_vsock_virtio_transport/virtio*")
	return err == nil && len(devices) > 0
}

func openVsock() (*vsockPort, error) {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make the socket of the channel: %w", err)
	}
	err = unix.Bind(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: channel.VsockPort})
	if err == nil {
		err = unix.Listen(fd, 4)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listen for the host: %w", err)
	}
	return &vsockPort{listener: fd}, nil
}

// accept waits for the host and makes its connection the port's.
func (p *vsockPort) accept() error {
	for {
		fd, from, err := unix.Accept4(p.listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED), errors.Is(err, unix.ECONNRESET):
			continue
		case err != nil:
			return fmt.Errorf("accept the host's connection: %w", err)
		}
		if addr, ok := from.(*unix.SockaddrVM); !ok || addr.CID != unix.VMADDR_CID_HOST {
			unix.Close(fd)
			continue
		}
		if p.File != nil {
			p.File.Close()
		}
		p.File = os.NewFile(uintptr(fd), "host")
		return nil
	}
}

// awaitWake sends READY to the first host that connects, and waits for the Wake, of that host or of the one that
// restores the guest from a snapshot.
func (p *vsockPort) awaitWake() (channel.Wake, error) {
	if err := p.accept(); err != nil {
		return channel.Wake{}, err
	}
	if err := channel.SendReady(p); err != nil {
		return channel.Wake{}, fmt.Errorf("report to the host: %w", err)
	}
	return p.awaitNext()
}

// awaitNext implements hostPort. The host that has suspended the guest can use its connection again.
func (p *vsockPort) awaitNext() (channel.Wake, error) {
	for {
		wake, err := channel.AwaitWake(p)
		if !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.ENOTCONN) && !errors.Is(err, io.EOF) {
			return wake, err
		}
		if err := p.accept(); err != nil {
			return channel.Wake{}, err
		}
	}
}
