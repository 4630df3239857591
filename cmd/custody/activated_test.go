package main

import (
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/service/remote"
)

// activated returns a call of custody serve that inherits sockets, as systemd starts it: descriptor 3 is the first one. The environment names
// the process and their number.
func activated(d *door, sockets []*os.File, number string, args ...string) *exec.Cmd {
	cmd := d.command(append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	cmd.Env = append(cmd.Env, "LISTEN_FDS="+number)
	cmd.ExtraFiles = sockets
	return cmd
}

// listening returns a socket at path, which the group of the clients can connect to.
func listening(t *testing.T, network, path string) *os.File {
	t.Helper()
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	if err := os.Chown(path, 0, someone); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		t.Fatal(err)
	}
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestActivated: custody serve answers clients at the socket that systemd passes, tells systemd when it is ready, and leaves the socket there.
func TestActivated(t *testing.T) {
	t.Parallel()
	admin := newGVisorDoor(t)
	admin.asks = true
	dir := publicDir(t)
	path := filepath.Join(dir, "custody.sock")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	admin.env = append(admin.env, "NOTIFY_SOCKET="+manager.LocalAddr().String())
	serve := activated(admin, []*os.File{listening(t, "unixpacket", path)}, "1")
	serve.Stderr = os.Stderr
	admin.start(serve)
	if err := manager.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	told := make([]byte, 100)
	n, err := manager.Read(told)
	if err != nil || string(told[:n]) != "READY=1" {
		t.Fatalf("systemd receives %q, %v", told[:n], err)
	}
	user := *admin
	user.dir = filepath.Join(dir, "home")
	if err := os.Mkdir(user.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	user.env, user.launch = []string{remote.SocketEnv + "=" + path}, as(someone, someone)
	if said := user.must(0, "run", "-q", "--", "echo", "hi"); said.stdout != "hi\n" {
		t.Errorf("it prints %q", said.stdout)
	}
	user.must(0, "verify", "last")
	if err := serve.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	serve.Wait()
	if info, err := os.Stat(path); err != nil || info.Mode().Type() != fs.ModeSocket {
		t.Errorf("after the end of the service the socket is %v, %v", info, err)
	}
}

// TestActivatedRefuses: sockets that are not the one of custody.socket are refused with what to change.
func TestActivatedRefuses(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	dir := t.TempDir()
	packets := listening(t, "unixpacket", filepath.Join(dir, "packets"))
	stream := listening(t, "unix", filepath.Join(dir, "stream"))
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for name, c := range map[string]struct {
		sockets []*os.File
		number  string
		args    []string
		says    string
	}{
		"two":            {[]*os.File{packets, stream}, "2", nil, "systemd passes 2 sockets: the unit needs exactly one, with ListenSequentialPacket="},
		"no number":      {[]*os.File{packets}, "", nil, "the unit needs exactly one"},
		"none":           {nil, "1", nil, "the socket that systemd passes"},
		"a stream":       {[]*os.File{stream}, "1", nil, "is no unix socket of the type SOCK_SEQPACKET"},
		"a file":         {[]*os.File{file}, "1", nil, "the socket that systemd passes"},
		"another path":   {[]*os.File{packets}, "1", []string{"--socket", filepath.Join(dir, "other")}, "give the same --socket, or none"},
		"ends when idle": {[]*os.File{packets}, "1", []string{"--idle", "1h"}, "does not end by itself"},
	} {
		t.Run(name, func(t *testing.T) {
			d := *d
			d.T = t
			if said := d.finish(activated(&d, c.sockets, c.number, c.args...)); said.code == 0 || !strings.Contains(said.stderr, c.says) {
				t.Errorf("exit code %d, %q; want %q", said.code, said.stderr, c.says)
			}
		})
	}
}
