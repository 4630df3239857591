package hostd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/worker"
)

// Client has a Server make sandboxes. It is safe for concurrent use.
type Client struct{ Socket string }

var _ Opener = Client{}

// Connect connects to a Server for the calls that it has in addition to those of sandboxes. The caller runs the connection.
func (c Client) Connect() (*privsep.Conn, error) { return c.connect(nil) }

func (c Client) connect(handlers map[string]privsep.Handler) (*privsep.Conn, error) {
	socket, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: c.Socket, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("custody host does not answer: is its service running? %w", err)
	}
	return privsep.New(socket, handlers), nil
}

// Open implements Opener.
func (c Client) Open(ctx context.Context, s Spec, e Events) (worker.Sandbox, Details, error) {
	conn, err := c.connect(map[string]privsep.Handler{
		callNotice:  handle(func(_ context.Context, text string) (any, error) { e.Notice(text); return none{}, nil }),
		callStalled: handle(func(_ context.Context, text string) (any, error) { e.Stalled(errors.New(text)); return none{}, nil }),
		callResumed: handle(func(context.Context, none) (any, error) { e.Resumed(); return none{}, nil }),
	})
	if err != nil {
		return nil, Details{}, err
	}
	r := &remote{conn: conn, running: make(chan error, 1)}
	go func() { r.running <- conn.Run(context.WithoutCancel(ctx)) }()
	var details Details
	if _, err := conn.Call(ctx, callOpen, s, &details); err != nil {
		return nil, details, errors.Join(err, r.hangUp())
	}
	return r, details, nil
}

// remote is a sandbox of a Server.
type remote struct {
	conn    *privsep.Conn
	running chan error // receives the result of Run
	closed  bool
}

var _ worker.Sandbox = (*remote)(nil)

// call makes a call without a result.
func (r *remote) call(ctx context.Context, name string, files ...*os.File) error {
	_, err := r.conn.Call(ctx, name, none{}, nil, files...)
	return err
}

// Begin implements worker.Sandbox.
func (r *remote) Begin(ctx context.Context, id worker.Identity, files []*os.File) error {
	f, err := privsep.Memory("identity", id)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.call(ctx, callBegin, append(files[:len(files):len(files)], f)...)
}

// SetPolicy implements worker.Sandbox.
func (r *remote) SetPolicy(ctx context.Context, rules []string) error {
	f, err := privsep.Memory("policy", rules)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.call(ctx, callPolicy, f)
}

// End implements worker.Sandbox.
func (r *remote) End() error { return r.call(context.Background(), callEnd) }

// Recover implements worker.Sandbox.
func (r *remote) Recover(ctx context.Context, files []*os.File) error {
	return r.call(ctx, callRecover, files...)
}

// Signed implements worker.Sandbox.
func (r *remote) Signed(ctx context.Context) (manifest []byte, err error) {
	_, err = r.conn.Call(ctx, callSigned, none{}, &manifest)
	return manifest, err
}

// Causes implements worker.Sandbox. Only the text of errors crosses the connection.
func (r *remote) Causes() []error { return nil }

// Close implements worker.Sandbox.
func (r *remote) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	return errors.Join(r.call(context.Background(), callClose), r.hangUp())
}

// hangUp ends the connection, and with it the sandbox.
func (r *remote) hangUp() error {
	r.conn.Close()
	return <-r.running
}
