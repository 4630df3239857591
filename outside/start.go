package outside

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/store/remote"
	"github.com/custody-project/custody/vmm/confine"
)

// Arg is the only argument of this program when it is started as the process that speaks to servers. Main is its main function.
const Arg = "custody-outside"

// memory limits the memory of the process, in bytes.
const memory = 256 << 20

// Main is the main function of the process. It returns the program's exit code.
func Main() int {
	if err := serve(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "custody:", err)
		return 1
	}
	return 0
}

// serve carries out the calls of root's process until that ends the connection.
func serve(ctx context.Context) error {
	b, s := &broker{}, &storeServer{}
	handlers := b.handlers()
	maps.Copy(handlers, s.handlers())
	handlers[callRequest] = (&web{known: map[[32]byte]*http.Transport{}}).request
	conn, _, err := privsep.Enter(handlers, 0)
	if err != nil {
		return err
	}
	b.root = conn
	conn.Kinds = remote.Kinds
	debug.SetMemoryLimit(memory * 3 / 4)
	return conn.Run(ctx)
}

// describe returns the process, which is not started yet.
func describe() (privsep.Worker, error) {
	binds, env, err := hostd.Trusted(os.Getenv)
	if err != nil {
		return privsep.Worker{}, err
	}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return privsep.Worker{Args: []string{Arg}, Env: env, Binds: append(binds, names()...), Stderr: os.Stderr, Memory: memory}, nil
}

// names returns the files that the resolver reads. Those that do not exist are left out.
func names() (binds []confine.Bind) {
	for _, name := range []string{"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"} {
		if real, err := filepath.EvalSymlinks(name); err == nil {
			binds = append(binds, confine.Bind{Path: real, Name: name, Flags: unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, Optional: true})
		}
	}
	return binds
}

// remoteError returns the error of the other process as one of this one.
func remoteError(err error) error {
	if e := new(privsep.RemoteError); errors.As(err, &e) {
		return errors.New(e.Text)
	}
	return err
}
