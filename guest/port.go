package guest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
)

// hostPort is the guest's end of the channel: a port of virtio-serial, or a virtio socket.
type hostPort interface {
	io.ReadWriteCloser
	// awaitWake sends READY when the host is there, and returns its Wake.
	awaitWake() (channel.Wake, error)
	// awaitNext returns the Wake of the next host, after the guest was suspended.
	awaitNext() (channel.Wake, error)
}

// openHostPort opens the one that the machine has.
func openHostPort() (hostPort, error) {
	serial, err := openPort("custody")
	if err == nil {
		return serial, nil
	}
	if hasVsock() {
		return openVsock()
	}
	return nil, err
}

// port is the virtio-serial port that leads to the host.
//
// A port can be read while the other end is closed, and then returns no
// bytes. Before the host's first bytes that means to wait: the process that made the snapshot
// has closed it and the process that restores it has not opened it yet. Afterwards it is the end.
type port struct{ *os.File }

// openPort opens the port of that name, which must exist by now.
func openPort(name string) (*port, error) {
	const class = "/sys/class/virtio-ports"
	entries, err := os.ReadDir(class)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for the host's port: %w", err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(class, e.Name(), "name"))
		if err != nil || strings.TrimSpace(string(b)) != name {
			continue
		}
		fd, err := unix.Open("/dev/"+e.Name(), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil, fmt.Errorf("open the host's port: %w", err)
		}
		return &port{os.NewFile(uintptr(fd), "host")}, nil
	}
	return nil, fmt.Errorf("no virtio-serial port is called %q", name)
}

// awaitWake sends READY once the host has opened the port, and waits for the Wake.
func (p *port) awaitWake() (channel.Wake, error) {
	for p.poll(unix.POLLOUT)&unix.POLLHUP != 0 {
		time.Sleep(pause)
	}
	if err := channel.SendReady(p); err != nil {
		return channel.Wake{}, fmt.Errorf("tell the host: %w", err)
	}
	return channel.AwaitWake(patient{p})
}

// awaitNext implements hostPort.
func (p *port) awaitNext() (channel.Wake, error) { return channel.AwaitWake(patient{p}) }

const pause = time.Millisecond

func (p *port) poll(events int16) int16 {
	fds := []unix.PollFd{{Fd: int32(p.fd()), Events: events}}
	for {
		if _, err := unix.Poll(fds, -1); err != unix.EINTR {
			return fds[0].Revents
		}
	}
}

func (p *port) fd() (fd uintptr) {
	if c, err := p.SyscallConn(); err == nil {
		c.Control(func(f uintptr) { fd = f })
	}
	return fd
}

// patient reads from a port that the host may not have opened yet. It waits
// in poll(2) instead of the runtime's poller, for which a hang-up is permanent.
type patient struct{ *port }

func (p patient) Read(b []byte) (int, error) {
	for {
		p.poll(unix.POLLIN)
		n, err := unix.Read(int(p.fd()), b)
		switch {
		case n > 0:
			return n, nil
		case n == 0 || err == unix.EPIPE:
			time.Sleep(pause)
		case err != unix.EAGAIN && err != unix.EINTR:
			return 0, err
		}
	}
}
