package channel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/custody-project/custody/audit"
)

// Handler handles the guest's events one by one, in the order in which
// the guest observed them. Until it returns, no more events are read: a flood of events
// fills the window of the event stream and then slows the processes that cause it. An
// error ends the session, and every later call returns it.
type Handler func(context.Context, *audit.Event) error

// errClosed is what calls return after Close.
var errClosed = errors.New("channel is closed")

// Client is the host's end of the channel. It treats everything from the
// guest as hostile: sizes are bounded, unknown messages refused, and the
// first violation of the protocol ends the session with an error that wraps ErrHostile.
//
// Its methods are safe for concurrent use.
type Client struct {
	session  *yamux.Session
	link     *link
	guard    *guard
	limit    int64 // maximum bytes of CopyOut
	handler  Handler
	identity assigned
	ctx      context.Context // ends with the session
	cancel   context.CancelCauseFunc
	work     sync.WaitGroup // every goroutine of the client

	suspending atomic.Bool // Suspend was called

	opening sync.Mutex // held from a hello to the last of its data streams, which the guest identifies by their order

	mu     sync.Mutex // guards the fields below
	steps  map[string]bool
	marked uint64        // the last mark on the event stream
	moved  chan struct{} // closed and replaced when marked moves
	copied tree          // what CopyIn put into the workspace

	processes processes
}

// Connect wakes the guest at the other end of conn. The guest has no identity until Identify; from then on its
// events are passed to h. If ctx ends before the guest is awake, conn is closed. A nil h drops
// events.
func Connect(ctx context.Context, conn io.ReadWriteCloser, w Wake, h Handler) (*Client, error) {
	if h == nil {
		h = func(context.Context, *audit.Event) error { return nil }
	}
	defer closeOnDone(ctx, conn)()
	c, err := connect(ctx, conn, w, h)
	if err != nil {
		conn.Close()
		return nil, contextOr(ctx, err)
	}
	return c, nil
}

func connect(ctx context.Context, conn io.ReadWriteCloser, w Wake, h Handler) (*Client, error) {
	if err := wake(conn, w); err != nil {
		return nil, err
	}
	l := &link{ReadWriteCloser: conn}
	g := &guard{ReadWriteCloser: combine(l), parked: make(chan struct{})}
	session, err := yamux.Client(g, yamuxConfig())
	if err != nil {
		return nil, err
	}
	c := &Client{
		session: session, link: l, guard: g, limit: w.Scratch, handler: h, identity: assigned{done: make(chan struct{})},
		steps: map[string]bool{}, moved: make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	events, err := c.open(ctx, hello{Kind: streamEvents}, 0)
	if err != nil {
		session.Close()
		return nil, err
	}
	c.work.Go(func() { c.end(c.readEvents(events[0])) })
	return c, nil
}

// Done is closed when the session has ended; Err then reports why.
func (c *Client) Done() <-chan struct{} { return c.ctx.Done() }

// Err returns why the session ended, or nil if it has not.
func (c *Client) Err() error { return context.Cause(c.ctx) }

// Close ends the session, which makes the guest power off, and waits for all
// goroutines of the client. Processes' Wait calls return an error.
func (c *Client) Close() error {
	c.end(errClosed)
	c.work.Wait()
	return nil
}

func (c *Client) end(err error) {
	c.cancel(err)
	c.link.Close()
	c.session.Close()
}

// Drain makes the guest free, and so zero, the memory of ended steps: pages
// that its CPUs still refer to, and the buffers of the channel. The kernel's driver frees
// the buffers that the host has read when the guest writes again, which its answer does.
func (c *Client) Drain(ctx context.Context) error {
	_, err := c.ask(ctx, hello{Kind: streamDrain})
	return err
}

// ask opens a stream whose only frame is the guest's report.
func (c *Client) ask(ctx context.Context, h hello) (r report, err error) {
	streams, err := c.open(ctx, h, 0)
	if err != nil {
		return r, err
	}
	defer streams[0].Close()
	defer context.AfterFunc(ctx, func() { unblock(streams[0]) })()
	if err := readFrame(streams[0], &r, maxReport); err != nil {
		return r, c.failed(ctx, string(h.Kind), err)
	}
	if r.Error != "" {
		return r, fmt.Errorf("%s: guest: %.500q", h.Kind, r.Error)
	}
	return r, nil
}

// open sends a hello on a new stream and opens its data streams.
func (c *Client) open(ctx context.Context, h hello, data int) (streams []net.Conn, err error) {
	c.opening.Lock()
	defer c.opening.Unlock()
	if c.suspending.Load() && h.Kind != streamSuspend && h.Kind != streamPark {
		return nil, ErrSuspended
	}
	for range 1 + data {
		s, err := c.session.Open()
		if err != nil {
			return nil, c.failed(ctx, "open a stream", err)
		}
		streams = append(streams, s)
		if len(streams) > 1 {
			continue
		}
		stop := context.AfterFunc(ctx, func() { unblock(s) })
		if err := writeFrame(s, h, maxHello); err != nil {
			return nil, c.failed(ctx, "say hello", err)
		}
		if !stop() {
			return nil, c.failed(ctx, "say hello", ctx.Err())
		}
	}
	return streams, nil
}

// failed chooses the cause of a failed operation: a violation of
// the protocol, the caller's context, or the session's end.
func (c *Client) failed(ctx context.Context, what string, err error) error {
	switch {
	case errors.Is(err, ErrHostile):
		c.end(err)
	case c.Err() != nil:
		err = c.Err()
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s: %w", what, err)
}

func (c *Client) readEvents(r io.Reader) error {
	for {
		var f eventFrame
		if err := readFrame(r, &f, maxEvent); err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("guest is gone: it closed the channel")
			}
			return err
		}
		if (f.Event == nil) == (f.Mark == 0) {
			return hostile("event frame must hold an event or a mark")
		}
		if f.Event == nil {
			if err := c.mark(f.Mark); err != nil {
				return err
			}
			continue
		}
		offset, err := c.identity.await(c.ctx)
		if err != nil {
			return err
		}
		if err := admit(f.Event, time.Now(), offset, c.knowsStep); err != nil {
			return err
		}
		if err := c.handler(c.ctx, f.Event); err != nil {
			return fmt.Errorf("record a guest's event: %w", err)
		}
	}
}

func (c *Client) knowsStep(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.steps[name]
}

func (c *Client) mark(n uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n <= c.marked {
		return hostile("mark %d after mark %d", n, c.marked)
	}
	c.marked = n
	close(c.moved)
	c.moved = make(chan struct{})
	return nil
}

// awaitMark returns when all events before mark n have been handled.
func (c *Client) awaitMark(ctx context.Context, n uint64) error {
	for {
		c.mu.Lock()
		reached, moved := c.marked >= n, c.moved
		c.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.ctx.Done():
			return c.Err()
		}
	}
}
