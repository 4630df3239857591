package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/flock"
)

// DefaultSocket is where the service listens.
const DefaultSocket = "/run/custody/custody.sock"

// SocketEnv names the socket that clients use in place of DefaultSocket; "none": they use no service.
const SocketEnv = "CUSTODY_SOCKET"

// Socket returns the path of the service's socket, "" if commands are to be carried out without the service: $CUSTODY_SOCKET, else
// DefaultSocket if it exists and no other state is chosen with $CUSTODY_HOME.
func Socket(getenv func(string) string) string {
	switch path := getenv(SocketEnv); {
	case path == "none":
		return ""
	case path != "":
		return path
	case getenv("CUSTODY_HOME") != "":
		return ""
	}
	if _, err := os.Stat(DefaultSocket); err != nil {
		return ""
	}
	return DefaultSocket
}

// Listener is a server's socket. Close removes its file if this process has made it.
type Listener struct {
	*net.UnixListener
	path string
	info fs.FileInfo // of the file; nil: it is another process's
}

// Listen listens at path, which the members of a group can connect to. It replaces the file of a server that has ended. If systemd
// passes a socket to this process, it listens on that one; path is then empty or the same.
func Listen(ctx context.Context, getenv func(string) string, path, group string) (*Listener, error) {
	if Inherits(getenv) {
		return inherited(getenv, path)
	}
	gid, err := groupID(group)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if path == DefaultSocket { // its directory may have been made for root only
		if err := os.Chmod(dir, 0o711); err != nil {
			return nil, err
		}
	}
	var l *Listener
	err = locked(ctx, dir, func() (err error) {
		if err := vacant(path); err != nil {
			return err
		}
		l, err = listen(path, gid)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

func groupID(name string) (int, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, &Failure{fmt.Sprintf("the group of the service's socket: %v", err), "make it with groupadd --system " + name + ", or name another with --group"}
	}
	return strconv.Atoi(g.Gid)
}

// locked calls do while no other server changes the directory.
func locked(ctx context.Context, dir string, do func() error) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := flock.Lock(ctx, f, unix.LOCK_EX); err != nil {
		return err
	}
	return do()
}

// vacant returns an error if a server listens at path, or the path is another kind of file.
func vacant(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("it exists and is no socket: give another path")
	}
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err == nil {
		return errors.Join(errors.New("another server listens there: end it first"), c.Close())
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return err
	}
	return nil
}

// backlog is the number of connections that wait to be accepted.
const backlog = 128

// listen makes the socket. It gets its name when it has its owner and mode.
func listen(path string, gid int) (*Listener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	fresh := path + "~"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: fresh}); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	err = errors.Join(os.Chown(fresh, -1, gid), os.Chmod(fresh, 0o660), os.NewSyscallError("listen", unix.Listen(fd, backlog)))
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(fresh))
	}
	l, err := listenerOf(f)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	l.path = path
	if l.info, err = os.Lstat(path); err != nil {
		return nil, errors.Join(err, l.UnixListener.Close())
	}
	return l, nil
}

// listenerOf returns the listener of a socket; the caller closes the file.
func listenerOf(f *os.File) (*Listener, error) {
	any, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	l, ok := any.(*net.UnixListener)
	if !ok || l.Addr().Network() != "unixpacket" {
		return nil, errors.Join(fmt.Errorf("%s is no unix socket of the type SOCK_SEQPACKET", f.Name()), any.Close())
	}
	l.SetUnlinkOnClose(false)
	return &Listener{UnixListener: l}, nil
}

// inheritedFD is the first descriptor of sd_listen_fds(3).
const inheritedFD = 3

// Inherits reports whether systemd passes sockets to this process.
func Inherits(getenv func(string) string) bool {
	return getenv("LISTEN_PID") == strconv.Itoa(os.Getpid())
}

// inherited returns the socket that systemd passes to this process (ListenSequentialPacket= of a socket unit).
func inherited(getenv func(string) string, path string) (*Listener, error) {
	if n := getenv("LISTEN_FDS"); n != "1" {
		return nil, fmt.Errorf("systemd passes %s sockets: the unit needs exactly one, with ListenSequentialPacket=", n)
	}
	f := os.NewFile(inheritedFD, "the socket that systemd passes")
	defer f.Close()
	l, err := listenerOf(f)
	if err != nil {
		return nil, err
	}
	if at := l.Addr().String(); path != "" && at != path {
		return nil, errors.Join(fmt.Errorf("systemd passes the socket %s: give the same --socket, or none", at), l.UnixListener.Close())
	}
	return l, nil
}

// Close stops listening. It can be called again, and l can be nil.
func (l *Listener) Close() error {
	if l == nil {
		return nil
	}
	err := l.UnixListener.Close()
	if l.info == nil || errors.Is(err, net.ErrClosed) {
		return err
	}
	return errors.Join(err, locked(context.Background(), filepath.Dir(l.path), func() error {
		if now, err := os.Lstat(l.path); err != nil || !os.SameFile(now, l.info) {
			return nil // another server has replaced it
		}
		return os.Remove(l.path)
	}))
}
