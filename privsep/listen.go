package privsep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/flock"
)

// Listener is a server's socket. Close removes its file if this process has made it.
type Listener struct {
	*net.UnixListener
	path string
	info fs.FileInfo // of the file; nil: it is another process's
}

// Access is who can connect to a socket: the owner, the group and the mode of its file. An ID of -1 is that of this process.
type Access struct {
	UID, GID int
	Mode     os.FileMode
}

// Listen listens at path. It replaces the file of a server that has ended.
func Listen(ctx context.Context, path string, a Access) (*Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var l *Listener
	err := locked(ctx, dir, func() (err error) {
		if err := vacant(path); err != nil {
			return err
		}
		l, err = listen(path, a)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
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
func listen(path string, a Access) (*Listener, error) {
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
	err = errors.Join(os.Chown(fresh, a.UID, a.GID), os.Chmod(fresh, a.Mode), os.NewSyscallError("listen", unix.Listen(fd, backlog)))
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(fresh))
	}
	l, err := ListenerOf(f)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	l.path = path
	if l.info, err = os.Lstat(path); err != nil {
		return nil, errors.Join(err, l.UnixListener.Close())
	}
	return l, nil
}

// ListenerOf returns the listener of a socket that this process has inherited; the caller closes the file.
func ListenerOf(f *os.File) (*Listener, error) {
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
