package hostd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	keys "github.com/custody-project/custody/audit/proof/hostkey/remote"
	"github.com/custody-project/custody/host"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/worker"
)

// SocketEnv names the socket of the Server that a process without privileges uses.
const SocketEnv = "CUSTODY_HOST"

// Client has a Server make sandboxes and sign. It is safe for concurrent use. When the Server was restarted, it connects again.
type Client struct {
	socket string

	mu      sync.Mutex    // guards the fields below
	keys    *privsep.Conn // for signatures; nil before the first, and after Close
	running chan struct{} // closed when Run of keys has returned
	closed  bool
}

var _ Opener = (*Client)(nil)

// NewClient returns the client of the Server at a socket. The caller closes it.
func NewClient(socket string) *Client { return &Client{socket: socket} }

// OpenHome opens dir, whose runs, log and store belong to this process, with what only root can change in the Server's home. Signatures come
// from the Server. The first time, it takes over the log that the Server's home has.
func (c *Client) OpenHome(ctx context.Context, dir string) (*host.Host, error) {
	var shared string
	if _, err := (signatures{c}).Call(ctx, callHome, none{}, &shared); err != nil {
		return nil, err
	}
	h, err := host.OpenShared(dir, shared)
	if err != nil {
		return nil, err
	}
	h.Keys().Use(keys.NewClient(signatures{c}))
	return h, host.TakeOver(ctx, h, former{signatures{c}})
}

// signatures makes calls over the connection for signatures.
type signatures struct{ client *Client }

var _ keys.Caller = signatures{}

// Call implements keys.Caller. It fails while the Server is not running.
func (s signatures) Call(ctx context.Context, name string, args, result any, files ...*os.File) ([]*os.File, error) {
	conn, err := s.client.keyConn(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Call(ctx, name, args, result, files...)
}

// keyConn returns the connection for signatures. It is made again after it has ended.
func (c *Client) keyConn(ctx context.Context) (*privsep.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, privsep.ErrClosed
	case c.keys != nil:
		select {
		case <-c.keys.Ended():
			c.hangUp()
		default:
			return c.keys, nil
		}
	}
	conn, err := c.connect(ctx, nil)
	if err != nil {
		return nil, err
	}
	c.keys, c.running = conn, make(chan struct{})
	go func(done chan struct{}) {
		defer close(done)
		_ = conn.Run(context.WithoutCancel(ctx)) // calls report that it has ended
	}(c.running)
	return conn, nil
}

// hangUp ends the connection for signatures, if there is one. The caller holds mu.
func (c *Client) hangUp() {
	if c.keys == nil {
		return
	}
	c.keys.Close()
	<-c.running
	c.keys = nil
}

// Close ends the connection for signatures. Later calls over it fail.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.hangUp()
	return nil
}

// connect connects to the Server, which ends the connection of a process that does not answer.
func (c *Client) connect(ctx context.Context, handlers map[string]privsep.Handler) (*privsep.Conn, error) {
	socket, err := c.dial(ctx)
	if err != nil {
		return nil, &unreachableError{err}
	}
	all := map[string]privsep.Handler{callAlive: handle(func(context.Context, none) (any, error) { return none{}, nil })}
	maps.Copy(all, handlers)
	conn := privsep.New(socket, all)
	conn.Kinds = kinds
	return conn, nil
}

// The Server's queue of connections can be full while many begin: dial tries again after dialAgain, for dialTime.
const (
	dialAgain = 20 * time.Millisecond
	dialTime  = 30 * time.Second
)

func (c *Client) dial(ctx context.Context) (*net.UnixConn, error) {
	for began := time.Now(); ; {
		socket, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: c.socket, Net: "unixpacket"})
		if !errors.Is(err, unix.EAGAIN) || time.Since(began) > dialTime {
			return socket, err
		}
		select {
		case <-time.After(dialAgain):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// unreachableError means that no connection can be made.
type unreachableError struct{ cause error }

// Error implements error.
func (e *unreachableError) Error() string {
	return fmt.Sprintf("custody host does not answer: %v", e.cause)
}

// Unwrap returns the cause.
func (e *unreachableError) Unwrap() error { return e.cause }

// Hint returns what to do about it.
func (e *unreachableError) Hint() string {
	if errors.Is(e.cause, fs.ErrPermission) {
		return "it serves root and the user that its --user names"
	}
	return "have an administrator start it, or see why it has ended: systemctl status custody-host"
}

// Open implements Opener.
func (c *Client) Open(ctx context.Context, s Spec, e Events) (worker.Sandbox, Details, error) {
	conn, err := c.connect(ctx, map[string]privsep.Handler{
		callNotice:   handle(func(_ context.Context, text string) (any, error) { e.Notice(text); return none{}, nil }),
		callProgress: handle(func(_ context.Context, text string) (any, error) { e.Progress(text); return none{}, nil }),
		callStalled:  handle(func(_ context.Context, text string) (any, error) { e.Stalled(errors.New(text)); return none{}, nil }),
		callResumed:  handle(func(context.Context, none) (any, error) { e.Resumed(); return none{}, nil }),
	})
	if err != nil {
		return nil, Details{}, err
	}
	r := begin(ctx, conn)
	var details Details
	if _, err := conn.Call(ctx, callOpen, s, &details); err != nil {
		return nil, details, errors.Join(err, r.hangUp())
	}
	return r, details, nil
}

// Reopen implements Opener.
func (c *Client) Reopen(ctx context.Context, run string) (worker.Sandbox, error) {
	conn, err := c.connect(ctx, nil)
	if err != nil {
		return nil, err
	}
	r := begin(ctx, conn)
	if _, err := conn.Call(ctx, callReopen, run, nil); err != nil {
		return nil, errors.Join(err, r.hangUp())
	}
	return r, nil
}

// begin runs the connection of a sandbox.
func begin(ctx context.Context, conn *privsep.Conn) *remote {
	r := &remote{conn: conn, running: make(chan error, 1)}
	go func() { r.running <- conn.Run(context.WithoutCancel(ctx)) }()
	return r
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

// Save implements worker.Sandbox.
func (r *remote) Save(ctx context.Context, keep time.Duration, about []byte) (saved worker.Saved, err error) {
	f, err := privsep.Memory("sandbox", json.RawMessage(about))
	if err != nil {
		return saved, err
	}
	defer f.Close()
	_, err = r.conn.Call(ctx, callSave, keep, &saved, f)
	return saved, err
}

// Continued implements worker.Sandbox.
func (r *remote) Continued(ctx context.Context) error { return r.call(ctx, callContinued) }

// Signed implements worker.Sandbox.
func (r *remote) Signed(ctx context.Context) (manifest []byte, err error) {
	_, err = r.conn.Call(ctx, callSigned, none{}, &manifest)
	return manifest, err
}

// Causes implements worker.Sandbox. Errors of kinds and hints cross the connection, other types do not.
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
