package channel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
)

// Process is a command that runs in a cell of the guest.
//
//	Start --> running --> main command ended, its cell killed, sensors flushed
//	                          |
//	                          v
//	          report read --> mark handled --> Wait returns
//
// A caller that starts a process must read Stdout and Stderr to their ends; unread
// output blocks the process, and so its end.
type Process struct {
	// Stdin is the command's standard input. Closing it is the command's end of
	// file, save on a terminal, where an end of file is a character. Once the
	// command has ended, writes return io.ErrClosedPipe.
	Stdin io.WriteCloser
	// Stdout and Stderr end after the last byte that the command's cell wrote, or
	// when the session dies, which Wait then reports. With a terminal Stderr is nil.
	Stdout, Stderr io.Reader

	client *Client
	ctl    net.Conn
	ended  chan struct{} // closed when exit, mark and err are set
	exit   Exit
	mark   uint64
	err    error

	send  sync.Mutex // one control frame at a time
	lease lease
}

// Start starts a command. It does not wait for the guest: a command that
// is not found or cannot be executed reports that in its Exit. The exceptions are a command with secrets or
// a lease, whose secrets have been sent when Start returns, and one in a session, which executes then.
func (c *Client) Start(ctx context.Context, cmd Command) (*Process, error) {
	if !c.identity.known() {
		return nil, fmt.Errorf("start %q: %w", cmd.Step, ErrAnonymous)
	}
	c.mu.Lock()
	c.steps[cmd.Step] = true
	c.mu.Unlock()
	p, err := c.start(ctx, streamExec, cmd)
	if err != nil {
		return nil, fmt.Errorf("start %q: %w", cmd.Step, err)
	}
	return p, nil
}

func (c *Client) start(ctx context.Context, kind streamKind, cmd Command) (*Process, error) {
	wire, err := cmd.encode()
	if err != nil {
		return nil, err
	}
	data := 3
	if cmd.TTY != nil {
		data = 2
	}
	streams, err := c.open(ctx, hello{Kind: kind, Command: wire}, data)
	if err != nil {
		return nil, err
	}
	p := &Process{client: c, ctl: streams[0], ended: make(chan struct{}), Stdin: &stdin{conn: streams[1]}, Stdout: streams[2]}
	if cmd.TTY == nil {
		p.Stderr = streams[3]
	}
	var early *report
	if p.lease.open(cmd); wire.Sealed {
		if early, err = p.hand(ctx, cmd); err != nil {
			closeAll(streams)
			return nil, err
		}
		c.work.Go(p.ask)
	}
	if cmd.Session && early == nil {
		if early, err = p.begun(ctx); err != nil {
			p.err = err
			close(p.ended)
			closeAll(streams) // the guest kills the command
			return nil, err
		}
	}
	if c.processes.add(p) {
		p.Stdin.Close()
	}
	c.work.Go(func() { p.await(streams, early) })
	return p, nil
}

// begun waits until the command executes. A guest that could not execute it reports its end instead: that is its last report.
func (p *Process) begun(ctx context.Context) (last *report, err error) {
	stop := context.AfterFunc(ctx, func() { unblock(p.ctl) })
	defer func() {
		if !stop() && err == nil {
			err = ctx.Err()
		}
		if err != nil {
			err = p.client.failed(ctx, "start the command", err)
		}
	}()
	var r report
	if err := readFrame(p.ctl, &r, maxReport); err != nil {
		return nil, err
	}
	switch {
	case r.only(r.Started):
		return nil, nil
	case r.Exit != nil && !r.Started:
		return &r, nil
	}
	return nil, hostile("first report of a command in a session is neither its start nor its end")
}

// await reads the guest's reports about the command until it has ended.
func (p *Process) await(streams []net.Conn, last *report) {
	defer close(p.ended)
	defer p.client.processes.remove(p)
	var err error
	if last == nil {
		last, err = p.listen()
	}
	if err == nil && last.Suspended {
		err = ErrSuspended
	}
	if err == nil {
		err = checkExit(last)
	}
	if err != nil {
		p.err = p.client.failed(context.Background(), "wait for the command", err)
	} else {
		p.exit, p.mark = *last.Exit, last.Mark
	}
	streams[1].SetWriteDeadline(past())
	closeAll(streams)
}

// processes are those of a client that have not ended. The zero value is empty.
type processes struct {
	mu        sync.Mutex // guards the fields below
	all       map[*Process]bool
	suspended bool // the input of all has ended
}

// add adds a process that has started. It reports whether the processes are suspended.
func (ps *processes) add(p *Process) (suspended bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.all == nil {
		ps.all = map[*Process]bool{}
	}
	ps.all[p] = true
	return ps.suspended
}

// suspend returns the processes, whose input ends now, as that of those that are added later does.
func (ps *processes) suspend() []*Process {
	ps.mu.Lock()
	ps.suspended = true
	ps.mu.Unlock()
	return ps.list()
}

func (ps *processes) remove(p *Process) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.all, p)
}

func (ps *processes) list() []*Process {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return slices.Collect(maps.Keys(ps.all))
}

func closeAll(streams []net.Conn) {
	for _, s := range streams {
		s.Close()
	}
}

// listen reads up to the report of the command's end, which it returns.
func (p *Process) listen() (*report, error) {
	for {
		r := &report{}
		if err := readFrame(p.ctl, r, maxReport); err != nil {
			return nil, err
		}
		var err error
		switch {
		case r.Exit != nil && r.Proof == nil && r.Wiped == nil && r.Key == nil && !r.Started && !r.Suspended:
			return r, nil
		case r.only(r.Suspended) && p.client.suspending.Load():
			return r, nil
		case r.only(r.Proof != nil):
			err = p.lease.judge(r.Proof)
		case r.only(r.Wiped != nil):
			err = p.lease.wiped(r.Wiped)
		case r.Key != nil:
			p.lease.tell("it asked for secrets that are not the step's to have")
			err = hostile("an unrequested key to seal secrets with")
		default:
			err = hostile("report of a command without its exit and mark")
		}
		if err != nil {
			return nil, err
		}
	}
}

// only reports whether a report has exactly one kind of contents.
func (r *report) only(has bool) bool {
	n := 0
	for _, set := range []bool{r.Started, r.Key != nil, r.Proof != nil, r.Wiped != nil, r.Exit != nil, r.Mark != 0, r.Clock != nil, r.Deleted != nil, r.Warnings != nil, r.Ports != nil, r.Connected, r.Refused, r.Suspended, r.Error != "", r.Done} {
		if set {
			n++
		}
	}
	return has && n == 1
}

func checkExit(r *report) error {
	switch {
	case r.Exit == nil || r.Mark == 0:
		return hostile("report of a command without its exit and mark")
	case r.Exit.Code < 0 || r.Exit.Code > 255 || r.Exit.Signal < 0 || r.Exit.Signal > 64:
		return hostile("exit code %d, signal %d", r.Exit.Code, r.Exit.Signal)
	}
	return nil
}

// EndSession kills all processes of the session, and returns when the Handler has handled their last events.
func (c *Client) EndSession(ctx context.Context) error {
	r, err := c.ask(ctx, hello{Kind: streamEnd})
	if err == nil && (r.Mark == 0 || !r.Done) {
		err = hostile("answer to the end of the session without a mark")
	}
	if err == nil {
		err = c.awaitMark(ctx, r.Mark)
	}
	if err != nil {
		return fmt.Errorf("end the session: %w", err)
	}
	return nil
}

// Wait returns how the command ended, after the Handler has handled every event that the guest's
// sensors observed before. If ctx ends first
// the command continues, and Wait may be called again.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-p.ended:
	case <-ctx.Done():
		return Exit{}, context.Cause(ctx)
	}
	if p.err != nil {
		return Exit{}, p.err
	}
	if err := p.client.awaitMark(ctx, p.mark); err != nil {
		return Exit{}, fmt.Errorf("wait for the command's last events: %w", err)
	}
	return p.exit, nil
}

// Signal sends sig to the command's process group. For a command that has ended it does nothing.
func (p *Process) Signal(ctx context.Context, sig syscall.Signal) error {
	return p.control(ctx, control{Signal: int(sig)})
}

// Resize sets the size of the command's terminal; without one it does nothing.
func (p *Process) Resize(ctx context.Context, w Winsize) error {
	return p.control(ctx, control{Resize: &w})
}

func (p *Process) control(ctx context.Context, m control) error {
	p.send.Lock()
	defer p.send.Unlock()
	select {
	case <-p.ended:
		return nil
	default:
	}
	// A frame cut short by ctx would spoil those after it, so it is sent whole; it is tiny.
	if err := writeFrame(p.ctl, m, maxReport); err != nil {
		select {
		case <-p.ended:
			return nil
		default:
		}
		return p.client.failed(ctx, "control the command", err)
	}
	return nil
}

type stdin struct{ conn net.Conn }

func (s *stdin) Write(b []byte) (int, error) {
	n, err := s.conn.Write(b)
	if err != nil {
		err = fmt.Errorf("%w: %w", io.ErrClosedPipe, err)
	}
	return n, err
}

func (s *stdin) Close() error {
	if err := s.conn.Close(); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	return nil
}
