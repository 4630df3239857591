package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/internal/splice"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/vmm/remote"
)

// The calls about ports of the owner of a session.
const (
	callPorts   = "ports"
	callConnect = "connect"
)

// maxTunnels bounds the connections to ports that are open or being made. Each can hold two windows of the channel.
const maxTunnels = 64

// ErrManyConnections means that as many connections to ports of the sandbox are open as it can have.
var ErrManyConnections = fmt.Errorf("%d connections to ports of the sandbox are open, which is the limit: close some", maxTunnels)

// kinds are the errors of a worker that its owner distinguishes.
var kinds = privsep.Kinds{
	"not listening": channel.ErrNotListening, "many connections": ErrManyConnections, "not suspended": sandbox.ErrNotSuspended,
}

// Connection describes a connection to a port; see sandbox.Inbound.
type Connection struct {
	Port     int
	Who, Via string
}

// portHandlers returns the calls about ports.
func (p *processes) portHandlers() map[string]privsep.Handler {
	return map[string]privsep.Handler{
		callConnect: p.connect,
		callPorts: privsep.Handle(func(ctx context.Context, _ none) (any, []*os.File, error) {
			_, s, err := p.open()
			if err != nil {
				return nil, nil, err
			}
			ports, err := sandbox.Ports(ctx, s)
			return ports, nil, err
		}),
	}
}

// open returns the sandbox of the open session, and the context of what happens in it.
func (p *processes) open() (context.Context, *sandbox.Sandbox, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx == nil {
		return nil, nil, errors.New("the session does not run")
	}
	return p.ctx, p.sandbox, nil
}

// connect connects a socket to a port. The second file is a socket that ends when the caller has gone, and here when the connection has ended.
func (p *processes) connect(ctx context.Context, body []byte, files []*os.File) (_ any, _ []*os.File, err error) {
	defer func() {
		if err != nil {
			closeFiles(files)
		}
	}()
	var c Connection
	if err := privsep.Decode(body, &c); err != nil {
		return nil, nil, err
	}
	if len(files) != 2 {
		return nil, nil, fmt.Errorf("the call has %d descriptors", len(files))
	}
	id, err := p.reserve()
	if err != nil {
		return nil, nil, err
	}
	err = p.tunnel(ctx, sandbox.Inbound{ID: id, Port: c.Port, Who: c.Who, Via: c.Via}, files)
	if err != nil {
		p.release()
	}
	return none{}, nil, err
}

// reserve counts one more connection, and returns its ID.
func (p *processes) reserve() (id string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ctx == nil:
		return "", errors.New("the session does not run")
	case p.tunnels == maxTunnels:
		return "", ErrManyConnections
	}
	p.tunnels++
	p.opened++
	p.steps.Add(1)
	return fmt.Sprint("c", p.opened), nil
}

func (p *processes) release() {
	p.mu.Lock()
	p.tunnels--
	p.mu.Unlock()
	p.steps.Done()
}

// tunnel connects, and carries the bytes in the background.
func (p *processes) tunnel(ctx context.Context, in sandbox.Inbound, files []*os.File) error {
	session, s, err := p.open()
	if err != nil {
		return err
	}
	var socket, life *net.UnixConn
	if err := remote.Sockets(files, &socket, &life); err != nil {
		if socket != nil {
			socket.Close()
		}
		return err
	}
	t, err := s.Connect(ctx, in)
	if err != nil {
		return errors.Join(err, socket.Close(), life.Close())
	}
	go func() { // p.steps waits for it
		defer p.release()
		ctx, cancel := context.WithCancelCause(session)
		defer cancel(nil)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			io.Copy(io.Discard, life)
			cancel(errCallerGone)
		}()
		if err := t.Carry(ctx, socket); err != nil {
			p.worker.notice(err.Error())
		}
		life.Close()
		<-gone
	}()
	return nil
}

// errCallerGone is why a connection ends whose caller has closed it.
var errCallerGone = errors.New("the caller closed it")

// Ports returns the TCP ports on which processes of the session listen.
func (s *Session) Ports(ctx context.Context) (ports []int, err error) {
	err = s.call(ctx, callPorts, none{}, &ports)
	return ports, err
}

// Tunnel is a connection to a port of a session. Close ends both directions, CloseWrite that to the sandbox.
type Tunnel struct {
	*net.UnixConn
	life   *net.UnixConn // closed with the connection at either end, so that the other one notices
	over   chan struct{} // closed when the worker has ended the connection
	closed atomic.Bool
}

// Over is closed when both directions have ended. What the sandbox has sent before can still be read.
func (t *Tunnel) Over() <-chan struct{} { return t.over }

// Close ends the connection.
func (t *Tunnel) Close() error {
	if t.closed.Swap(true) {
		return net.ErrClosed
	}
	err := errors.Join(t.UnixConn.Close(), t.life.Close())
	<-t.over
	return err
}

// watch waits for the end of the connection.
func (t *Tunnel) watch() {
	defer close(t.over)
	io.Copy(io.Discard, t.life)
}

// socketPair returns two connected sockets: one for this process, and one for the worker.
func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "tunnel"), os.NewFile(uintptr(fds[1]), "tunnel")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return conn.(*net.UnixConn), theirs, nil
}

var _ splice.Conn = (*Tunnel)(nil)

// Dial connects to a TCP port in the session. The error is channel.ErrNotListening if nothing listens there. ctx bounds only the dial.
func (s *Session) Dial(ctx context.Context, c Connection) (*Tunnel, error) {
	conn, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	life, there, err := socketPair()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	defer there.Close()
	t := &Tunnel{UnixConn: conn, life: life, over: make(chan struct{})}
	go t.watch() // Close waits for it
	if err := s.call(ctx, callConnect, c, nil, theirs, there); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}
