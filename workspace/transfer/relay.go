package transfer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/privsep"
)

// Relay is in place of a Server that is at the other end of a connection, in the process of a user. It passes on bodies, and
// descriptors of pipes only from the user's process to the worker. It is safe for concurrent use.
type Relay struct {
	conn   *privsep.Conn
	closed atomic.Bool
}

// NewRelay returns the Relay of the Server at the other end of the connection.
func NewRelay(c *privsep.Conn) *Relay { return &Relay{conn: c} }

var _ privsep.Server = (*Relay)(nil)

// Handlers implements privsep.Server.
func (r *Relay) Handlers() map[string]privsep.Handler {
	h := map[string]privsep.Handler{}
	for _, call := range []string{callPack, callPacked, callOpen, callDirectory, callFile, callLink, callPlace, callDrop, callClose} {
		h[call] = r.relay(call)
	}
	return h
}

// relay returns the handler of one call.
func (r *Relay) relay(call string) privsep.Handler {
	relay := privsep.Relay(r.conn, call)
	return func(ctx context.Context, body []byte, files []*os.File) (any, []*os.File, error) {
		if r.closed.Load() || len(files) > 0 {
			closeAll(files)
			return nil, nil, errClosed
		}
		result, with, err := relay(ctx, body, nil)
		if err == nil {
			err = onlyPipes(with)
		}
		if err != nil {
			closeAll(with)
			return nil, nil, err
		}
		return result, with, nil
	}
}

// onlyPipes returns an error unless the files are at most one pipe.
func onlyPipes(files []*os.File) error {
	if len(files) > 1 {
		return fmt.Errorf("the result has %d descriptors", len(files))
	}
	for _, f := range files {
		raw, err := f.SyscallConn()
		if err != nil {
			return err
		}
		var refused error
		if err := raw.Control(func(fd uintptr) { _, refused = unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0) }); err != nil || refused != nil {
			return errors.Join(errors.New("the descriptor of the result is no pipe"), err)
		}
	}
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// Close implements privsep.Server. The Server at the other end is closed by its process, at the latest when the connection ends.
func (r *Relay) Close() error {
	r.closed.Store(true)
	return nil
}
