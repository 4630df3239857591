package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/service/remote"
)

// session serves one client. Its run is cancelled when the connection ends.
//
//	new --run--> running --> ended
//	 |              |          |
//	 +--------------+----------+--the connection's end--> gone
type session struct {
	server  *Server
	peer    privsep.Peer
	conn    *privsep.Conn
	signals chan syscall.Signal
	resizes chan channel.Winsize

	mu      sync.Mutex // guards the fields below
	called  bool       // the client has made a call
	ran     bool
	running bool
	ending  bool                    // the server ends
	cancel  context.CancelCauseFunc // of the run; nil: none has begun
}

func newSession(s *Server, p privsep.Peer) *session {
	return &session{server: s, peer: p, signals: make(chan syscall.Signal, 8), resizes: make(chan channel.Winsize, 1)}
}

// handlers returns the calls of a client.
func (s *session) handlers() map[string]privsep.Handler {
	all := map[string]privsep.Handler{
		remote.CallRun:    s.run,
		remote.CallSignal: privsep.Handle(s.signal),
		remote.CallResize: privsep.Handle(s.resize),
		remote.CallCancel: privsep.Handle(s.cancelled),
	}
	if s.server.Calls != nil {
		maps.Copy(all, s.server.Calls(s.peer, func() *privsep.Conn { return s.conn }))
	}
	for name, handle := range all {
		all[name] = func(ctx context.Context, body []byte, files []*os.File) (any, []*os.File, error) {
			s.mu.Lock()
			s.called = true
			s.mu.Unlock()
			return handle(ctx, body, files)
		}
	}
	return all
}

// expire ends the connection of a client that has made no call.
func (s *session) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.called {
		s.server.Meter.Refuse(silent)
		s.conn.Close()
	}
}

var errShutdown = &cancellation{"the service ends"}

// end is called when the server ends. It cancels the run, whose result is still sent.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	if !s.running {
		s.conn.Close()
		return
	}
	s.cancel(errShutdown)
	time.AfterFunc(shutdownTime, func() { s.conn.Close() })
}

// begin returns the context of the run, and a function to be called at its end.
func (s *session) begin(ctx context.Context) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ending:
		return nil, nil, errShutdown
	case s.ran:
		return nil, nil, errors.New("a connection is for one run")
	case !s.server.runs.add(s.peer.UID):
		s.server.Meter.Refuse(tooManyRuns)
		return nil, nil, &remote.Failure{Text: "the service carries out as many runs as it may, in all or for you", Advice: "try again when one of them has ended"}
	}
	s.ran, s.running = true, true
	ctx, s.cancel = context.WithCancelCause(ctx)
	return ctx, s.done, nil
}

// done is called at the end of the run.
func (s *session) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel(nil)
	s.running = false
	s.server.runs.remove(s.peer.UID)
	s.server.pruneSoon()
	if s.ending { // after the result
		time.AfterFunc(lastMessage, func() { s.conn.Close() })
	}
}

// run carries out the call run.
func (s *session) run(ctx context.Context, _ []byte, files []*os.File) (any, []*os.File, error) {
	r, err := readRequest(files)
	if err != nil {
		s.server.Meter.Refuse(badRequest)
		return nil, nil, err
	}
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return outcomeOf(run.Result{}, err), nil, nil
	}
	job, res, err := s.carryOut(ctx, r)
	s.server.Meter.Run(resultOf(res, err))
	s.server.removing.Go(func() { // the client does not wait for that
		defer done()
		if job != nil {
			s.server.remove(job)
		}
	})
	return outcomeOf(res, err), nil, nil
}

// carryOut carries out a run. The caller closes the job, if there is one.
func (s *session) carryOut(ctx context.Context, r remote.Request) (*run.Job, run.Result, error) {
	u := &caller{conn: s.conn, ctx: ctx}
	h, err := s.server.Open()
	if err != nil {
		return nil, run.Result{}, err
	}
	h.Warn = u.notice
	o, err := s.options(h, u, r)
	if err != nil {
		return nil, run.Result{}, err
	}
	job, err := run.Prepare(ctx, o)
	if err != nil {
		return nil, run.Result{}, err
	}
	res, err := job.Run(ctx)
	if err != nil {
		return job, res, err
	}
	s.server.Notice(fmt.Sprintf("run %s of %v ended with exit code %d", res.ID, s.peer, res.ExitCode))
	if r.JSON {
		res.Err = errors.Join(res.Err, u.records(h.RunLogs(), res.ID))
	}
	return job, res, nil
}

// options returns the options of a run.
func (s *session) options(h *host.Host, u *caller, r remote.Request) (o run.Options, err error) {
	o = run.Options{
		Home: h, Command: r.Command, Secrets: r.Secrets, Template: r.Template, Isolation: r.Isolation, Cold: r.Cold, Version: s.server.Version, User: s.peer.UID, Vetted: true,
		Notice: u.notice, Problem: u.problem, Meters: s.server.Meters,
		Attach: func() (run.Console, func()) { return u.attach(s, r.JSON) }, Workdir: r.Workdir, Out: r.Out, OpenFiles: u.openFiles,
		Sandboxes: s.server.Sandboxes,
	}
	if !r.Quiet {
		o.Progress = u.progress
	}
	if err := o.SetSource(r.Source); err != nil {
		return o, err
	}
	if err := o.WithinDefaults(r.Source); err != nil {
		return o, err
	}
	if origin := o.Origin(); origin != "" && !r.Quiet {
		u.notice(origin)
	}
	if o.Env, err = variables(r); err != nil {
		return o, err
	}
	warnings, err := o.Warnings()
	if err != nil {
		return o, err
	}
	for _, w := range warnings {
		u.notice("warning: " + w)
	}
	o.Templates, err = run.Templates(h, notices{u})
	return o, err
}

// passed are the signals that a client passes to the commands of its run.
var passed = []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

func (s *session) signal(_ context.Context, c remote.SignalCall) (any, []*os.File, error) {
	if !slices.Contains(passed, c.Signal) {
		return nil, nil, fmt.Errorf("signal %d is not passed on", c.Signal)
	}
	return remote.None{}, nil, offer(s.signals, c.Signal)
}

func (s *session) resize(_ context.Context, size channel.Winsize) (any, []*os.File, error) {
	return remote.None{}, nil, offer(s.resizes, size)
}

// offer passes on what is taken in time.
func offer[T any](to chan<- T, v T) error {
	select {
	case to <- v:
		return nil
	default:
		return errors.New("too many wait to be passed on")
	}
}

// maxReason bounds the reason of a cancellation, which the record contains.
const maxReason = 200

func (s *session) cancelled(_ context.Context, c remote.CancelCall) (any, []*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel(&cancellation{strings.ToValidUTF8(c.Reason[:min(len(c.Reason), maxReason)], "?")})
	}
	return remote.None{}, nil, nil
}

// cancellation is why a run was cancelled.
type cancellation struct{ why string }

// Error implements error.
func (c *cancellation) Error() string { return c.why }

// Is makes it a context.Canceled.
func (c *cancellation) Is(target error) bool { return target == context.Canceled }
