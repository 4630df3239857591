package channel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// ErrSuspended means that the host has suspended the guest.
var ErrSuspended = errors.New("the guest is suspended")

// commands are the commands that run in the guest, and whether they are frozen. The zero value has none.
//
//	        suspend                         park                     thaw
//	open -------------> suspended, held -----------> suspended ------------> open
//	       all frozen                                   attach
type commands struct {
	starting sync.WaitGroup // commands that start
	serving  sync.WaitGroup // commands that are connected with the host, and those that start
	others   sync.WaitGroup // operations on files and connections to ports

	mu        sync.Mutex // guards the fields below
	running   map[string]*execution
	suspended bool
	holding   chan struct{} // closed when the streams of the commands are held; nil: nothing has asked for it
	leaving   chan struct{} // closed when the others must end; nil: nothing has asked for it
}

// begin announces a command. The caller calls started when it runs or has failed, and then left.
func (c *commands) begin(step string) (started func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.suspended {
		return nil, fmt.Errorf("start %q: %w", step, ErrSuspended)
	}
	c.serving.Add(1)
	c.starting.Add(1)
	return c.starting.Done, nil
}

// rejoin returns a suspended command, for another session of the host.
func (c *commands) rejoin(step string) (*execution, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.running[step]
	if x == nil || !x.parked {
		return nil, fmt.Errorf("no command of a step %.80q is suspended", step)
	}
	x.parked = false
	c.serving.Add(1)
	return x, nil
}

// leave is called when a command has been suspended, or could not be attached.
func (c *commands) leave(x *execution) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x.parked = true
}

// left is called when a command is not connected any more.
func (c *commands) left() { c.serving.Done() }

func (c *commands) add(x *execution) *execution {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running = map[string]*execution{}
	}
	c.running[x.cmd.Step] = x
	return x
}

func (c *commands) remove(x *execution) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[x.cmd.Step] == x {
		delete(c.running, x.cmd.Step)
	}
	close(x.gone)
}

// held is closed when the streams of the commands are held.
func (c *commands) held() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return lazy(&c.holding)
}

func lazy(c *chan struct{}) chan struct{} {
	if *c == nil {
		*c = make(chan struct{})
	}
	return *c
}

// aside interrupts what is done in the other streams when the guest is suspended. The caller calls end when it is done.
func (c *commands) aside(streams ...net.Conn) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	leaving, done := lazy(&c.leaving), make(chan struct{})
	c.others.Add(1)
	go func() {
		select {
		case <-leaving:
			for _, s := range streams {
				unblock(s)
			}
		case <-done:
		}
	}()
	return func() {
		close(done)
		c.others.Done()
	}
}

// suspend makes others end and freezes the commands, which begin to be held then. Commands that start run before they are frozen.
func (c *commands) suspend(freeze func() error) error {
	c.mu.Lock()
	if c.suspended {
		c.mu.Unlock()
		return ErrSuspended
	}
	c.suspended = true
	c.mu.Unlock()
	c.starting.Wait()
	err := c.awaitRemoved()
	if err == nil {
		err = c.stop(freeze)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.suspended = false
		return err
	}
	close(lazy(&c.holding))
	return nil
}

// stop makes others end, and then freezes the commands.
func (c *commands) stop(freeze func() error) error {
	c.mu.Lock()
	close(lazy(&c.leaving))
	c.mu.Unlock()
	c.others.Wait()
	err := freeze()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = nil
	return err
}

// removeTime bounds how long the guest may take to remove the cell of a command that has ended.
const removeTime = 10 * time.Second

// awaitRemoved returns when no command is left in a cell of its own: such a cell cannot be suspended. It waits only for commands that
// have ended, of which the host may have the report before the guest has removed the cell.
func (c *commands) awaitRemoved() error {
	late := time.After(removeTime)
	for _, x := range c.alone() {
		if !isClosed(x.exited) {
			return fmt.Errorf("the command of step %.80q is in a cell of its own and cannot be suspended", x.cmd.Step)
		}
		select {
		case <-x.gone:
		case <-late:
			return fmt.Errorf("the cell of step %.80q was not removed within %s of its end", x.cmd.Step, removeTime)
		}
	}
	return nil
}

// alone returns the commands in cells of their own.
func (c *commands) alone() (list []*execution) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.running {
		if _, ok := x.cell.(Holder); !ok {
			list = append(list, x)
		}
	}
	return list
}

// overflow reports whether a command was sent more input than can be kept for it.
func (c *commands) overflow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.running {
		if x.overflow {
			return true
		}
	}
	return false
}

// park makes the commands ready for another session. It reports false if the guest is not suspended.
func (c *commands) park() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.suspended {
		return false
	}
	c.holding = nil
	return true
}

// thaw ends the suspension.
func (c *commands) thaw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.suspended = false
}

// suspend freezes the commands and has the streams of each end with a report. Its own last report has a mark behind their events.
func (s *Server) suspend(ctx context.Context, ctl net.Conn) {
	if s.Freeze == nil || s.Thaw == nil {
		writeFrame(ctl, report{Error: "this guest cannot be suspended", Done: true}, maxReport)
		return
	}
	if err := s.commands.suspend(s.Freeze); err != nil {
		writeFrame(ctl, report{Error: err.Error(), Done: true}, maxReport)
		return
	}
	if writeFrame(ctl, report{Started: true}, maxReport) != nil {
		return
	}
	s.commands.serving.Wait()
	r := report{Done: true}
	if s.commands.overflow() {
		r.Error = fmt.Sprintf("a command has not read more than %d bytes of its input", maxHeld)
	}
	if s.Flush != nil {
		if err := s.Flush(ctx); err != nil && r.Error == "" {
			r.Error = fmt.Sprintf("flush the sensors: %v", err)
		}
	}
	var err error
	if r.Mark, err = s.events.mark(ctx); err != nil {
		return // the session has ended
	}
	writeFrame(ctl, r, maxReport)
}

// park ends the session of a suspended guest and keeps the connection. Its stream is not closed: only goAway follows the report.
func (s *Server) park(ctl net.Conn, written *combined, l *link, session *yamux.Session) error {
	if !s.commands.park() {
		const reason = "the guest is not suspended"
		writeFrame(ctl, report{Error: reason, Done: true}, maxReport)
		return errors.New("park: " + reason)
	}
	s.events.detach()
	s.stage.reached(parked)
	err := writeFrame(ctl, report{Done: true}, maxReport)
	if err == nil {
		err = written.settle()
	}
	if err == nil {
		err = l.leave(session)
	}
	if err == nil {
		_, err = l.ReadWriteCloser.Write(goAway[:]) // nothing but the next Wake is read from now on
	}
	if err != nil {
		return fmt.Errorf("park: %w", err)
	}
	return ErrSuspended
}

// attach connects the host with a command that runs since before the guest was suspended.
func (s *Server) attach(ctx context.Context, w *wireCommand, refused error, ctl net.Conn, data []net.Conn) {
	err := refused
	var x *execution
	if err == nil {
		x, err = s.commands.rejoin(w.Step)
	}
	if err != nil {
		s.finish(ctx, refusal(err), ctl, data)
		return
	}
	defer s.commands.left()
	if w.Sealed {
		if x.key, err = s.unseal(w.Step, ctl, x.cell.(Holder).Deliver); err != nil {
			s.commands.leave(x)
			s.finish(ctx, refusal(err), ctl, data)
			return
		}
	}
	x.cell.(Holder).Release()
	writeFrame(ctl, report{Started: true}, maxReport)
	s.conduct(ctx, x, ctl, data)
}

// thaw lets the commands run again.
func (s *Server) thaw() report {
	if s.Thaw != nil {
		if err := s.Thaw(); err != nil {
			return report{Error: err.Error(), Done: true}
		}
	}
	s.commands.thaw()
	return report{Done: true}
}

// Suspension suspends the guest of a client, and continues it. It is safe for concurrent use.
//
//	Suspend --> Park --> in another Client, after its Identify: Recall, Attach for each command, Thaw
type Suspension struct{ Client *Client }

// Suspend freezes the guest's commands. Each Process ends with ErrSuspended after all output before that, and the Handler has handled
// all events. Other calls fail from then on; those on files and ports are interrupted. stop is called when the commands
// are frozen: it writes what is left of their input, and nothing is written after it has returned. The guest must have an
// identity, and all its commands must be of the session. If the guest refuses, nothing has changed; after another error the client has
// ended. Park follows.
func (s Suspension) Suspend(ctx context.Context, stop func()) error {
	c := s.Client
	if !c.suspending.CompareAndSwap(false, true) {
		return ErrSuspended
	}
	frozen, err := s.suspend(ctx, stop)
	if err != nil && !frozen && c.Err() == nil {
		c.suspending.Store(false)
	} else if err != nil {
		c.end(err)
	}
	if err != nil {
		return fmt.Errorf("suspend the guest: %w", err)
	}
	return nil
}

func (s Suspension) suspend(ctx context.Context, stop func()) (frozen bool, err error) {
	c := s.Client
	streams, err := c.open(ctx, hello{Kind: streamSuspend}, 0)
	if err != nil {
		return false, err
	}
	ctl := streams[0]
	defer ctl.Close()
	defer context.AfterFunc(ctx, func() { unblock(ctl) })()
	read := func() (r report, err error) {
		if err = readFrame(ctl, &r, maxReport); err != nil {
			return r, c.failed(ctx, "read the answer", err)
		}
		if r.Error != "" {
			err = fmt.Errorf("guest: %.500q", r.Error)
		}
		return r, err
	}
	r, err := read()
	if err != nil {
		return false, err
	}
	if !r.only(r.Started) {
		return true, c.failed(ctx, "read the answer", hostile("first answer to a suspension that the commands are not frozen"))
	}
	stop()
	for _, p := range c.processes.suspend() {
		p.Stdin.Close()
	}
	if r, err = read(); err == nil && (r.Mark == 0 || !r.Done) {
		err = c.failed(ctx, "read the answer", hostile("answer to a suspension without a mark"))
	}
	if err == nil {
		err = c.awaitMark(ctx, r.Mark)
	}
	for _, p := range c.processes.list() {
		select {
		case <-p.ended:
		case <-ctx.Done():
			err = errors.Join(err, context.Cause(ctx))
		}
	}
	return true, err
}

// Park ends the session with a suspended guest, and keeps its connection: the guest waits for a Wake, in this machine or in one that has
// been restored from its snapshot. All output of its processes must have been read.
func (s Suspension) Park(ctx context.Context) error {
	c := s.Client
	err := s.silence(ctx)
	if err == nil {
		err = s.park(ctx)
	}
	if err != nil {
		c.end(err)
		return fmt.Errorf("park the guest: %w", err)
	}
	c.work.Wait()
	return nil
}

// silence waits until all streams but that of the events have been closed by both ends, so that nothing is on the way.
func (s Suspension) silence(ctx context.Context) error {
	c := s.Client
	for c.session.NumStreams() > 1 {
		select {
		case <-time.After(time.Millisecond):
		case <-c.ctx.Done():
			return c.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (s Suspension) park(ctx context.Context) error {
	c := s.Client
	if err := c.link.set(leaving); err != nil {
		return err
	}
	c.guard.parking.Store(true)
	c.cancel(ErrSuspended) // goAway ends all streams
	streams, err := c.open(ctx, hello{Kind: streamPark}, 0)
	if err != nil && isClosed(c.guard.parked) {
		return c.link.leave(c.session) // the guest was faster than yamux, which reports the end in place of the write
	}
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { unblock(streams[0]) })
	defer stop()
	var r report
	switch err := readFrame(streams[0], &r, maxReport); {
	case err != nil:
		return fmt.Errorf("no answer: %w", err)
	case r.Error != "":
		return fmt.Errorf("guest: %.500q", r.Error)
	case !r.only(r.Done):
		return hostile("answer to park that is none")
	}
	select {
	case <-c.session.CloseChan(): // by goAway, or otherwise
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !isClosed(c.guard.parked) {
		return io.ErrUnexpectedEOF
	}
	return c.link.leave(c.session)
}

// Attach connects with a command that runs since before the guest was suspended. Of cmd, Step and TTY must be those of its Start. What it
// has written meanwhile is at the beginning of its outputs. A command that was started with secrets can get new ones: their files are
// where the first ones were when Attach has returned. Its variables cannot be replaced. A command that is attached without secrets or a
// lease has none any more.
func (s Suspension) Attach(ctx context.Context, cmd Command) (*Process, error) {
	c := s.Client
	if !c.identity.known() {
		return nil, fmt.Errorf("attach %q: %w", cmd.Step, ErrAnonymous)
	}
	s.Recall(cmd.Step)
	cmd.Session, cmd.Argv = true, []string{"attach"} // which a command must have
	p, err := c.start(ctx, streamAttach, cmd)
	if err != nil {
		return nil, fmt.Errorf("attach %q: %w", cmd.Step, err)
	}
	return p, nil
}

// Recall permits events of steps that began before the guest was suspended.
func (s Suspension) Recall(steps ...string) {
	c := s.Client
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range steps {
		c.steps[name] = true
	}
}

// Thaw lets the commands of a guest that was suspended run again.
func (s Suspension) Thaw(ctx context.Context) error {
	c := s.Client
	_, err := c.ask(ctx, hello{Kind: streamThaw})
	return err
}
