package hostd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/worker"
)

// Opener makes sandboxes.
type Opener interface {
	Open(ctx context.Context, s Spec, e Events) (worker.Sandbox, Details, error)
	// Reopen returns what is left of the sandbox of a run whose processes died: its record.
	Reopen(ctx context.Context, run string) (worker.Sandbox, error)
}

// Server makes sandboxes for other processes of Custody, over a unix socket (SOCK_SEQPACKET). Each connection has at most one sandbox,
// which ends with it. Its fields are set before Serve.
type Server struct {
	Sandboxes Opener
	Users     []int // uids whose processes may connect
	Max       int   // number of connections; further ones are refused
	// Calls are further calls that each connection can make.
	Calls  map[string]privsep.Handler
	Notice func(string) // gets what the administrator should know; called concurrently
	Meters Meters       // of the pool; nil: none
	// Lease is for how long the Server keeps the connection, and the sandbox, of a process that does not answer, such as one that was
	// stopped; 0: leaseTime.
	Lease time.Duration
}

// acceptAgain is the time after which the Server tries again to accept a connection.
const acceptAgain = 100 * time.Millisecond

// Serve accepts connections until ctx is done, then ends them and returns when nothing of them is left. It closes l.
func (s *Server) Serve(ctx context.Context, l *privsep.Listener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()
	within, cancel := context.WithCancel(ctx) // done later than ctx, which l's end follows
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel()
	slots := make(chan struct{}, s.Max)
	for {
		c, err := l.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				c.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // such as too many open files
			s.Notice("accept a connection: " + err.Error())
			select {
			case <-time.After(acceptAgain):
			case <-ctx.Done():
			}
			continue
		}
		if err := s.admit(c); err != nil {
			s.Notice("a connection is refused: " + err.Error())
			c.Close()
			continue
		}
		select {
		case slots <- struct{}{}:
			serving.Go(func() {
				defer func() { <-slots }()
				s.serve(within, c)
			})
		default:
			s.Notice(fmt.Sprintf("a connection is refused: there are %d", s.Max))
			c.Close()
		}
	}
}

// admit returns an error if the process at the other end may not connect.
func (s *Server) admit(c *net.UnixConn) error {
	peer, err := privsep.PeerOf(c)
	if err == nil && !slices.Contains(s.Users, peer.UID) {
		err = fmt.Errorf("%v is not a user of this service", peer)
	}
	return err
}

// serve carries out the calls of a connection until it ends.
func (s *Server) serve(ctx context.Context, socket *net.UnixConn) {
	c := &client{server: s}
	handlers := c.handlers()
	for name, handler := range s.Calls {
		handlers[name] = handler
	}
	if s.Meters != nil {
		handlers[callMetrics] = metricsHandler(s.Meters)
	}
	c.conn = privsep.New(socket, handlers)
	c.conn.Kinds = kinds
	ctx, cancel := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { c.renew(ctx) })
	err := c.conn.Run(ctx)
	cancel()
	renewing.Wait()
	if err := errors.Join(err, c.close()); err != nil {
		s.Notice(err.Error())
	}
}

// renew asks again and again whether the other process answers, until ctx is done, and ends the connection if it does not.
func (c *client) renew(ctx context.Context) {
	lease := cmp.Or(c.server.Lease, leaseTime)
	tick := time.NewTicker(lease / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		late := time.AfterFunc(lease-lease/4, func() { // also while Call waits for room in the socket
			c.server.Notice(fmt.Sprintf("a process of the service has not answered for %v: its sandbox is ended", lease))
			c.conn.Close()
		})
		_, err := c.conn.Call(ctx, callAlive, none{}, nil)
		late.Stop()
		if err != nil {
			c.conn.Close()
			return
		}
	}
}

// client is a connection. Its sandbox is opened once.
type client struct {
	server *Server
	conn   *privsep.Conn

	mu      sync.Mutex // guards the fields below
	opened  bool
	sandbox worker.Sandbox // nil before it was made
}

// get returns the connection's sandbox.
func (c *client) get() (worker.Sandbox, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sandbox == nil {
		return nil, errors.New("there is no sandbox")
	}
	return c.sandbox, nil
}

// close ends the sandbox.
func (c *client) close() error {
	s, err := c.get()
	if err != nil {
		return nil
	}
	return s.Close()
}

// handlers returns the calls.
func (c *client) handlers() map[string]privsep.Handler {
	with := func(do func(context.Context, worker.Sandbox) (any, error)) privsep.Handler {
		return handle(func(ctx context.Context, _ none) (any, error) {
			s, err := c.get()
			if err != nil {
				return nil, err
			}
			return do(ctx, s)
		})
	}
	return map[string]privsep.Handler{
		callOpen: handle(c.open), callReopen: handle(c.reopen), callBegin: c.begin, callPolicy: c.policy, callRecover: c.recover,
		callEnd:       with(func(_ context.Context, s worker.Sandbox) (any, error) { return none{}, s.End() }),
		callSigned:    with(func(ctx context.Context, s worker.Sandbox) (any, error) { return s.Signed(ctx) }),
		callSave:      c.save,
		callContinued: with(func(ctx context.Context, s worker.Sandbox) (any, error) { return none{}, s.Continued(ctx) }),
		callClose:     with(func(_ context.Context, s worker.Sandbox) (any, error) { return none{}, s.Close() }),
	}
}

// take returns an error if the connection has had a sandbox.
func (c *client) take() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opened {
		return errors.New("the connection has had a sandbox")
	}
	c.opened = true
	return nil
}

func (c *client) set(s worker.Sandbox) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sandbox = s
}

// reopen opens what is left of the sandbox of a run.
func (c *client) reopen(ctx context.Context, run string) (any, error) {
	if err := c.take(); err != nil {
		return nil, err
	}
	s, err := c.server.Sandboxes.Reopen(ctx, run)
	if err != nil {
		return nil, err
	}
	c.set(s)
	return none{}, nil
}

// open makes the sandbox.
func (c *client) open(ctx context.Context, s Spec) (any, error) {
	if err := c.take(); err != nil {
		return nil, err
	}
	report := func(name string, args any) { _, _ = c.conn.Call(ctx, name, args, nil) } // fails only when the client has ended
	sandbox, details, err := c.server.Sandboxes.Open(ctx, s, Events{
		Notice:   func(text string) { report(callNotice, text) },
		Progress: func(text string) { report(callProgress, text) },
		Stalled:  func(err error) { report(callStalled, err.Error()) },
		Resumed:  func() { report(callResumed, none{}) },
	})
	if err != nil {
		return nil, err
	}
	c.set(sandbox)
	return details, nil
}

// begin gives the sandbox to a run. The last file has the run's identity.
func (c *client) begin(ctx context.Context, _ []byte, files []*os.File) (any, []*os.File, error) {
	defer closeAll(files)
	s, err := c.get()
	if err != nil {
		return nil, nil, err
	}
	if len(files) != worker.OwnerFiles+1 {
		return nil, nil, fmt.Errorf("%d files in place of %d", len(files), worker.OwnerFiles+1)
	}
	var r worker.Identity
	if err := privsep.FromMemory(files[worker.OwnerFiles], &r); err != nil {
		return nil, nil, fmt.Errorf("the identity of the run: %w", err)
	}
	return none{}, nil, s.Begin(ctx, r, files[:worker.OwnerFiles])
}

// policy replaces the policy by the one in the only file.
func (c *client) policy(ctx context.Context, _ []byte, files []*os.File) (any, []*os.File, error) {
	defer closeAll(files)
	s, err := c.get()
	if err != nil {
		return nil, nil, err
	}
	if len(files) != 1 {
		return nil, nil, fmt.Errorf("%d files in place of one", len(files))
	}
	var rules []string
	if err := privsep.FromMemory(files[0], &rules); err != nil {
		return nil, nil, fmt.Errorf("the rules: %w", err)
	}
	return none{}, nil, s.SetPolicy(ctx, rules)
}

// save stores the state of the sandbox, with the description in the only file.
func (c *client) save(ctx context.Context, body []byte, files []*os.File) (any, []*os.File, error) {
	defer closeAll(files)
	s, err := c.get()
	if err != nil {
		return nil, nil, err
	}
	var keep time.Duration
	if err := privsep.Decode(body, &keep); err != nil {
		return nil, nil, err
	}
	about, err := describe(files)
	if err != nil {
		return nil, nil, err
	}
	saved, err := s.Save(ctx, keep, about)
	return saved, nil, err
}

// describe returns the description of a sandbox in the only file; nil: it is null.
func describe(files []*os.File) ([]byte, error) {
	if len(files) != 1 {
		return nil, fmt.Errorf("%d files in place of one", len(files))
	}
	var about json.RawMessage
	if err := privsep.FromMemoryUpTo(worker.MaxAbout, files[0], &about); err != nil {
		return nil, fmt.Errorf("the description of the sandbox: %w", err)
	}
	if string(about) == "null" {
		return nil, nil
	}
	return about, nil
}

// recover starts a worker that closes the record.
func (c *client) recover(ctx context.Context, _ []byte, files []*os.File) (any, []*os.File, error) {
	defer closeAll(files)
	s, err := c.get()
	if err != nil {
		return nil, nil, err
	}
	if len(files) != worker.OwnerFiles {
		return nil, nil, fmt.Errorf("%d files in place of %d", len(files), worker.OwnerFiles)
	}
	return none{}, nil, s.Recover(ctx, files)
}
