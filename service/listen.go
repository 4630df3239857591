package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/service/remote"
)

// Listen listens at path, which the members of a group can connect to. It replaces the file of a server that has ended. If systemd
// passes a socket to this process, it listens on that one; path is then empty or the same.
func Listen(ctx context.Context, getenv func(string) string, path, group string) (*privsep.Listener, error) {
	if Inherits(getenv) {
		return inherited(getenv, path)
	}
	gid, err := groupID(group)
	if err != nil {
		return nil, err
	}
	if path == remote.DefaultSocket { // its directory may have been made for root only
		if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
			return nil, err
		}
		if err := os.Chmod(filepath.Dir(path), 0o711); err != nil {
			return nil, err
		}
	}
	return privsep.Listen(ctx, path, privsep.Access{UID: -1, GID: gid, Mode: 0o660})
}

func groupID(name string) (int, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, &remote.Failure{Text: fmt.Sprintf("the group of the service's socket: %v", err), Advice: "make it with groupadd --system " + name + ", or name another with --group"}
	}
	return strconv.Atoi(g.Gid)
}

// inheritedFD is the first descriptor of sd_listen_fds(3).
const inheritedFD = 3

// Inherits reports whether systemd passes sockets to this process.
func Inherits(getenv func(string) string) bool {
	return getenv("LISTEN_PID") == strconv.Itoa(os.Getpid())
}

// Ready tells systemd that this process answers clients (Type=notify of a unit). Without systemd it does nothing. What this process starts
// afterwards does not reach systemd.
func Ready() error {
	if _, err := daemon.SdNotify(true, daemon.SdNotifyReady); err != nil {
		return fmt.Errorf("tell systemd that the service is ready: %w", err)
	}
	return nil
}

// inherited returns the socket that systemd passes to this process (ListenSequentialPacket= of a socket unit).
func inherited(getenv func(string) string, path string) (*privsep.Listener, error) {
	if n := getenv("LISTEN_FDS"); n != "1" {
		return nil, fmt.Errorf("systemd passes %s sockets: the unit needs exactly one, with ListenSequentialPacket=", n)
	}
	f := os.NewFile(inheritedFD, "the socket that systemd passes")
	defer f.Close()
	l, err := privsep.ListenerOf(f)
	if err != nil {
		return nil, err
	}
	if at := l.Addr().String(); path != "" && at != path {
		return nil, errors.Join(fmt.Errorf("systemd passes the socket %s: give the same --socket, or none", at), l.UnixListener.Close())
	}
	return l, nil
}
