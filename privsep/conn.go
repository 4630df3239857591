// Package privsep separates privileges: an unprivileged worker, which parses what the guest and the network send, calls
// operations of the privileged process that started it, and that process calls the worker.
//
// The two share a socket pair that keeps message boundaries (SOCK_SEQPACKET), which no other process can reach. A message is one JSON object:
//
//	{"id":7,"call":"listen","body":{"port":443}}      a call
//	{"id":7,"body":{}}                                its result
//	{"id":7,"error":"port 443 is not in the policy"}  its failure; "hint" is what to do about it, "kind" one of Kinds
//
// Descriptors are attached to messages (SCM_RIGHTS). Each end assumes that the other one is compromised: the sizes of messages, the
// number of descriptors and of concurrent calls are bounded, bodies have no unknown fields, and a message that violates the
// protocol ends the connection.
package privsep

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// The limits of a connection.
const (
	MaxMessage = 64 << 10 // bytes of a message
	MaxFiles   = 32       // descriptors of a message
	maxCalls   = 64       // calls of the peer that are carried out concurrently; more wait in the socket
)

// ErrClosed means that the connection has ended, usually because the other process has.
var ErrClosed = errors.New("the connection between custody's processes has ended")

// RemoteError is the failure of a call, as reported by the other process.
type RemoteError struct {
	Call, Text string

	hint string
	kind error // one of Kinds, nil if it is none of them
}

// Error implements error.
func (e *RemoteError) Error() string { return e.Text }

// Hint returns what to do about it, "" if the other process did not say.
func (e *RemoteError) Hint() string { return e.hint }

// Unwrap returns the error of this process that it is.
func (e *RemoteError) Unwrap() error { return e.kind }

// Kinds are errors that keep their identity across a connection, by names on which both ends agree: errors.Is finds them in a RemoteError.
type Kinds map[string]error

// of returns the name of the error that err is; "": none.
func (k Kinds) of(err error) string {
	for _, name := range slices.Sorted(maps.Keys(k)) {
		if errors.Is(err, k[name]) {
			return name
		}
	}
	return ""
}

// Handler carries out a call. It owns the files that come with the call; those that it returns are sent and then closed.
// ctx is done when the connection ends.
type Handler func(ctx context.Context, body []byte, files []*os.File) (result any, with []*os.File, err error)

// Conn is one end of a connection. It is safe for concurrent use.
//
//	New --> idle --Run--> open --Close, the peer's end, a violation--> closed
type Conn struct {
	Kinds Kinds // set before Run

	conn     *net.UnixConn
	handlers map[string]Handler
	calls    sync.WaitGroup  // handlers that are running
	slots    chan struct{}   // one element for each of them
	writing  sync.Mutex      // held while a message is sent
	ended    chan struct{}   // closed when Run has ended
	closed   context.Context // done after Close
	cancel   context.CancelFunc

	mu      sync.Mutex // guards last and waiting
	last    uint64     // the ID of the last call
	waiting map[uint64]chan<- answer
}

// answer is what a call returns.
type answer struct {
	message
	files []*os.File
}

// message is the form of all messages.
type message struct {
	ID    uint64          `json:"id"`
	Call  string          `json:"call,omitempty"`
	Error string          `json:"error,omitempty"`
	Hint  string          `json:"hint,omitempty"`
	Kind  string          `json:"kind,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
}

// Pair returns the two ends of a new connection: a socket for this process, and a file for the other one, which inherits it.
func Pair() (here *net.UnixConn, there *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	there = os.NewFile(uintptr(fds[1]), "privsep")
	here, err = Socket(os.NewFile(uintptr(fds[0]), "privsep"))
	if err != nil {
		return nil, nil, errors.Join(err, there.Close())
	}
	return here, there, nil
}

// Socket returns the end of a connection that this process has inherited as a file, and closes the file.
func Socket(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok || u.LocalAddr().Network() != "unixpacket" {
		return nil, errors.Join(fmt.Errorf("descriptor %d is no socket of custody", f.Fd()), c.Close())
	}
	return u, nil
}

// New returns a connection over a socket of Pair, with the calls that the other process can make. Run must be called once.
func New(c *net.UnixConn, handlers map[string]Handler) *Conn {
	p := &Conn{conn: c, handlers: handlers, slots: make(chan struct{}, maxCalls), ended: make(chan struct{}), waiting: map[uint64]chan<- answer{}}
	p.closed, p.cancel = context.WithCancel(context.Background())
	return p
}

// Run reads messages until the connection ends, and then waits for the handlers. It returns nil if either end closed the connection.
func (c *Conn) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer c.calls.Wait()
	defer cancel()
	defer close(c.ended)
	defer c.conn.Close()
	stop := context.AfterFunc(ctx, func() { c.conn.Close() })
	defer stop()
	// begin can be waiting for handlers, which wait for the end of ctx.
	stopped := context.AfterFunc(c.closed, cancel)
	defer stopped()
	r := newReader(c.conn)
	for {
		m, files, err := r.next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, unix.ECONNRESET):
			return nil
		case err != nil:
			return fmt.Errorf("message of the other process: %w", err)
		case m.Call == "":
			err = c.deliver(m, files)
		default:
			err = c.begin(ctx, m, files)
		}
		if err != nil {
			closeAll(files)
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("message of the other process: %w", err)
		}
	}
}

// Ended is closed when the connection has ended, for example because the other process has violated the protocol.
func (c *Conn) Ended() <-chan struct{} { return c.ended }

// Busy returns whether as many calls of the other process are being carried out as can be. Its later messages wait until one returns.
func (c *Conn) Busy() bool { return len(c.slots) == cap(c.slots) }

// Close ends the connection, also while the other process has made as many calls as can be carried out. Calls fail with ErrClosed.
func (c *Conn) Close() error {
	c.cancel()
	return c.conn.Close()
}

// begin starts the handler of a call. While maxCalls are running, it waits, and with it all later messages.
func (c *Conn) begin(ctx context.Context, m message, files []*os.File) error {
	handle, ok := c.handlers[m.Call]
	if !ok {
		return fmt.Errorf("there is no call %.40q", m.Call)
	}
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return net.ErrClosed
	}
	if ctx.Err() != nil { // the slot is free because the connection has ended
		<-c.slots
		return net.ErrClosed
	}
	c.calls.Go(func() {
		defer func() { <-c.slots }()
		result, with, err := handle(ctx, m.Body, files)
		c.reply(m.ID, result, with, err)
	})
	return nil
}

// reply sends the result of a call. If the connection has ended, there is no one to send it to.
func (c *Conn) reply(id uint64, result any, with []*os.File, err error) {
	defer closeAll(with)
	m := message{ID: id}
	if err == nil {
		m.Body, err = json.Marshal(result)
	}
	if err == nil {
		if err = c.send(m, with); err == nil || errors.Is(err, ErrClosed) {
			return
		}
	}
	_ = c.send(c.failure(id, err), nil)
}

// failure returns the message that a call has failed.
func (c *Conn) failure(id uint64, err error) message {
	clip := func(text string) string { return text[:min(len(text), MaxMessage/16)] } // in JSON a byte can take 6
	m := message{ID: id, Error: clip(err.Error()), Kind: c.Kinds.of(err)}
	if h := (interface{ Hint() string })(nil); errors.As(err, &h) {
		m.Hint = clip(h.Hint())
	}
	return m
}

// deliver passes the result of a call to its caller, or discards it if the caller has given up.
func (c *Conn) deliver(m message, files []*os.File) error {
	c.mu.Lock()
	to, ok := c.waiting[m.ID]
	delete(c.waiting, m.ID)
	known := m.ID != 0 && m.ID <= c.last
	c.mu.Unlock()
	switch {
	case ok:
		to <- answer{m, files}
	case !known:
		return fmt.Errorf("a result of call %d, which was not made", m.ID)
	default:
		closeAll(files)
	}
	return nil
}

// Call calls the other process and decodes its result into result, unless that is nil. The files are sent along; they stay open
// here. The caller owns the returned files. If ctx is done, the call is carried out nevertheless, and its result discarded.
func (c *Conn) Call(ctx context.Context, name string, args, result any, files ...*os.File) ([]*os.File, error) {
	body, err := json.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", name, err)
	}
	got := make(chan answer, 1)
	c.mu.Lock()
	c.last++
	id := c.last
	c.waiting[id] = got
	c.mu.Unlock()
	if err := c.send(message{ID: id, Call: name, Body: body}, files); err != nil {
		c.forget(id)
		return nil, fmt.Errorf("call %s: %w", name, err)
	}
	select {
	case a := <-got:
		return c.decode(a, name, result)
	case <-ctx.Done():
		c.forget(id)
		return nil, fmt.Errorf("call %s: %w", name, context.Cause(ctx))
	case <-c.ended:
		select {
		case a := <-got: // it came before the end
			return c.decode(a, name, result)
		default:
			return nil, fmt.Errorf("call %s: %w", name, ErrClosed)
		}
	}
}

// forget gives up on a call, whose result may have arrived just now.
func (c *Conn) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

func (c *Conn) decode(a answer, name string, result any) ([]*os.File, error) {
	if a.Error != "" {
		closeAll(a.files)
		return nil, &RemoteError{name, a.Error, a.Hint, c.Kinds[a.Kind]}
	}
	if result == nil {
		return a.files, nil
	}
	if err := Decode(a.Body, result); err != nil {
		closeAll(a.files)
		return nil, fmt.Errorf("result of call %s: %w", name, err)
	}
	return a.files, nil
}

// Decode decodes a body, which must have no unknown fields.
func Decode(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return errors.New("more than one value")
	}
	return nil
}

// Relay returns a handler that makes the call at the other end of another connection, with the same body and descriptors.
func Relay(to *Conn, call string) Handler {
	return func(ctx context.Context, body []byte, files []*os.File) (any, []*os.File, error) {
		defer closeAll(files)
		var result json.RawMessage
		with, err := to.Call(ctx, call, json.RawMessage(body), &result, files...)
		return result, with, err
	}
}

// Server carries out calls of another process.
type Server interface {
	// Handlers returns the calls.
	Handlers() map[string]Handler
	// Close ends what they have started, and returns when nothing of it is left. Later calls fail.
	Close() error
}

// Handle returns a handler that decodes the body of a call into T. It accepts no files.
func Handle[T any](do func(ctx context.Context, args T) (result any, with []*os.File, err error)) Handler {
	return func(ctx context.Context, body []byte, files []*os.File) (any, []*os.File, error) {
		var args T
		if len(files) > 0 {
			closeAll(files)
			return nil, nil, errors.New("the call takes no descriptors")
		}
		if err := Decode(body, &args); err != nil {
			return nil, nil, err
		}
		return do(ctx, args)
	}
}
