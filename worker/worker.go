// Package worker runs one sandbox in a process without privileges, which parses everything that the guest and the network
// send: the channel to the guest, the monitor of its VM, DNS queries, and what the gateway proxies. It redacts and writes the run's log.
// Two processes serve it: the privileged one (package hostd), and the one that owns the run and its files, which needs no privileges.
// They can be the same.
//
//	hostd.Sandbox (root)                                   Main (worker: a uid of its own, no capabilities)
//	  fence.Namespace  <---- sockets, uplink ------------    fence.Fence, egress.Network
//	  Driver's Server  <---- start, end -----------------    the tier's Remote, sandbox.Run
//	  sealer.Signer    <---- sign a segment -------------    sealer.Remote
//
//	Run (owner of the run)
//	  remote.Server    <---- files of the log -----------    wal.Log, audit.Recorder
//	  brokers          <---- mint, renew, revoke --------    secrets.Issuer
//	  Files            <---- read and write files -------    the copies of the workspace
//	  Session          ----- policy, pause, signals ---->    worker
//	                                 privsep
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal/remote"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/sandbox"
	brokers "github.com/custody-project/custody/secrets/remote"
)

// Options are what the owner of a run needs, in addition to the worker's configuration.
type Options struct {
	Config
	Policy  *netpolicy.Policy
	Signed  statement.Facts // of the manifests
	Sandbox Sandbox         // the caller closes it
	Log     *remote.Server
	Brokers *brokers.Server // nil: the run has no secrets
	Files   privsep.Server  // copies the directories that the configuration names
	// Stdin is the input of the steps, Stdout and Stderr receive their redacted output; nil: none, and discard.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Signals        <-chan syscall.Signal  // to forward to the commands
	Resizes        <-chan channel.Winsize // of the terminal
	Events         Events
	// Ready, if set, is called when the run has a log and can be controlled, before its steps.
	Ready func(*Session)
	// Serve, if set, makes the run a session: it is called when processes can be started. The run ends when Serve returns.
	Serve func(context.Context, *Session)
}

// endTime bounds how long a worker may take to end a run that was cancelled or has reached its time limit, unless the record cannot
// be written. The end of a step takes 20 s, the brokers 10 s, a key that cannot sign 30 s.
const endTime = 2 * time.Minute

// streamTime is how long a worker that has reported the run's end may keep its output open. After that it is killed.
const streamTime = time.Second

// ErrDied means that the worker ended before the run did. Its record has been closed as interrupted, unless there is
// another error.
var ErrDied = errors.New("the worker ended before the run did")

// Run carries out the run in a worker, and returns when the worker has closed the record; it can do no more to the run then, and ends with
// Sandbox. If ctx is done, the worker ends the run. If the worker dies, the VM ends, and another worker closes the record. An error means
// that no run began.
func Run(ctx context.Context, o Options) (Result, error) {
	r := &run{Options: o, policy: o.Policy, started: newStarted(), filings: newFilings()}
	r.Events = &watched{Events: o.Events}
	result, err := r.carryOut(ctx)
	if !errors.Is(err, ErrDied) {
		return result, err
	}
	if !o.Log.Begun() {
		return result, err
	}
	closed, failed := r.recover(context.WithoutCancel(ctx), r.reason(err))
	closed.Result.Err = errors.Join(err, closed.Result.Err)
	if failed != nil { // the next start closes the record
		closed.Status, closed.ExitCode = audit.StatusInterrupted, sandbox.ExitFailed
	}
	closed.Record = errors.Join(closed.Record, failed)
	return closed, nil
}

// Recover closes the record of a run whose processes died, in a worker. Of the options it needs Settings.Run, TagKey, Sandbox, Log and Events.
func Recover(ctx context.Context, o Options) (Result, error) {
	r := &run{Options: o, started: newStarted(), filings: newFilings()}
	r.Events = &watched{Events: o.Events}
	return r.recover(ctx, "")
}

// run is a run in the process that owns it.
type run struct {
	Options
	own     Causes
	started *started
	filings *filings

	mu     sync.Mutex        // guards policy
	policy *netpolicy.Policy // that is in force, or about to be
}

// allowed returns the policy.
func (r *run) allowed() *netpolicy.Policy {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.policy
}

func (r *run) setPolicy(p *netpolicy.Policy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.policy = p
}

// causes returns errors with which calls of the worker failed.
func (r *run) causes() []error { return append(r.own.All(), r.Sandbox.Causes()...) }

// carryOut runs the sandbox.
func (r *run) carryOut(ctx context.Context) (result Result, err error) {
	leave := func(close func() error) {
		if err := close(); err != nil { // it does not change the run's result
			r.Events.Problem(err)
		}
	}
	handlers := maps.Clone(r.Files.Handlers())
	defer leave(r.Files.Close)
	orders := order{Config: r.Config, Rules: Rules(r.Policy)}
	orders.Session = r.Serve != nil
	if r.Brokers != nil {
		defer leave(func() error { return r.Brokers.Close(ctx) })
		maps.Copy(handlers, r.Brokers.Handlers())
		orders.Brokers = r.Brokers.Brokers()
	}
	identity := Identity{Run: r.Settings.Run, Facts: r.Signed, Rules: orders.Rules, Resolvers: r.Resolvers, Silence: r.Settings.Silence}
	return r.wait(ctx, orders, handlers, func(files []*os.File) error { return r.Sandbox.Begin(ctx, identity, files) })
}

// reason returns what the record says about the death of the worker.
func (r *run) reason(err error) string {
	if errors.Is(err, ErrSilent) {
		return fmt.Sprintf("the worker gave no sign of life for %s (limits.silence) and was killed; closed by another one", cmp.Or(r.Settings.Silence, DefaultSilence))
	}
	return ""
}

// recover closes the record of a worker that died.
func (r *run) recover(ctx context.Context, reason string) (Result, error) {
	if err := r.Log.Unlock(); err != nil {
		return Result{}, err
	}
	r.Stdin, r.Stdout, r.Stderr, r.Signals, r.Resizes, r.Ready, r.Serve = nil, nil, nil, nil, nil, nil, nil
	orders := order{Config: r.Config, Recover: true, Reason: reason}
	var err error
	if orders.Last, err = r.Sandbox.Signed(ctx); err != nil {
		return Result{}, err
	}
	return r.wait(ctx, orders, map[string]privsep.Handler{}, func(files []*os.File) error { return r.Sandbox.Recover(ctx, files) })
}

// wait gives a worker these orders, and waits for the run's end. The worker can make the calls of handlers and those that every worker makes.
func (r *run) wait(ctx context.Context, orders order, handlers map[string]privsep.Handler, begin func([]*os.File) error) (result Result, err error) {
	ended := make(chan outcome, 1)
	handlers[callEnded] = privsep.Handle(func(_ context.Context, o outcome) (any, []*os.File, error) {
		select {
		case ended <- o:
			return none{}, nil, nil
		default:
			return nil, nil, errors.New("the run ended before")
		}
	})
	live := make(chan chan<- struct{})
	handlers[callLive] = privsep.Handle(func(ctx context.Context, _ none) (any, []*os.File, error) {
		done := make(chan struct{})
		select {
		case live <- done:
			<-done
			return none{}, nil, nil
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	})
	maps.Copy(handlers, r.Log.Handlers())
	maps.Copy(handlers, r.started.handlers(r.causes))
	maps.Copy(handlers, r.filings.handlers(r.causes))
	maps.Copy(handlers, eventHandlers(r.Events, r.causes))
	console, err := r.openStreams()
	if err != nil {
		return result, err
	}
	defer console.close()
	c, err := r.connect(orders, console, handlers, begin)
	if err != nil {
		return result, err
	}
	console.started()
	session := r.newSession(c.Conn)
	result, err = r.await(ctx, session, live, ended)
	session.close()
	var closed error
	if err != nil || !console.ended(streamTime) {
		closed = r.Sandbox.End()
	}
	closed = errors.Join(closed, c.close())
	console.wait()
	if err != nil {
		return result, errors.Join(err, closed)
	}
	if closed != nil { // the run has ended before: its result stays
		r.Events.Problem(closed)
	}
	return result, nil
}

// connection is the connection to a worker.
type connection struct {
	*privsep.Conn
	running chan error // receives the result of Run
}

// connect gives a worker its orders.
func (r *run) connect(orders order, console *streams, handlers map[string]privsep.Handler, begin func([]*os.File) error) (*connection, error) {
	config, err := privsep.Memory("order", orders)
	if err != nil {
		return nil, err
	}
	defer config.Close()
	here, there, err := privsep.Pair()
	if err != nil {
		return nil, err
	}
	defer there.Close()
	c := &connection{privsep.New(here, r.own.Watch(handlers)), make(chan error, 1)}
	c.Kinds = kinds
	go func() { c.running <- c.Run(context.Background()) }()
	files := append([]*os.File{there, config}, console.theirs...)
	if err := begin(append(files, console.messages)); err != nil {
		if errors.Is(err, privsep.ErrClosed) {
			err = fmt.Errorf("%w: %w", ErrDied, err)
		}
		return nil, errors.Join(err, r.Sandbox.End(), c.close())
	}
	return c, nil
}

// close ends the connection, and returns an error if the worker violated the protocol.
func (c *connection) close() error {
	c.Close()
	return <-c.running
}

// await returns how the run ended.
func (r *run) await(ctx context.Context, s *Session, live <-chan chan<- struct{}, ended <-chan outcome) (Result, error) {
	late := time.NewTimer(r.Time + endTime)
	defer late.Stop()
	cancelled := ctx.Done()
	for {
		select {
		case done := <-live:
			if r.Ready != nil {
				r.Ready(s)
			}
			live = nil // a second call waits for the end
			close(done)
		case <-r.started.serving:
			if r.Serve != nil {
				s.passing.Go(func() { s.serve(r.Serve) })
			}
		case o := <-ended:
			return o.result(r.causes())
		case <-s.worker.Ended(): // with the worker, or because it violates the protocol
			return reported(ended, r.causes())
		case <-cancelled:
			cancelled = nil
			s.cancel(context.Cause(ctx))
			late.Reset(endTime)
		case <-late.C:
			if r.Events.(*watched).isStalled() {
				late.Reset(time.Second)
				continue
			}
			return Result{}, fmt.Errorf("%w: it did not end the run in time, and was killed", ErrDied)
		}
	}
}

// reported returns the result that a worker reported just before its end.
func reported(ended <-chan outcome, causes []error) (Result, error) {
	select {
	case o := <-ended:
		return o.result(causes)
	default:
		return Result{}, ErrDied
	}
}

// watched remembers whether the record can be written.
type watched struct {
	Events
	mu      sync.Mutex // guards stalled
	stalled bool
}

func (w *watched) set(stalled bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stalled = stalled
}

func (w *watched) isStalled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stalled
}

// Stalled implements Events.
func (w *watched) Stalled(err error) {
	w.set(true)
	w.Events.Stalled(err)
}

// Resumed implements Events.
func (w *watched) Resumed() {
	w.set(false)
	w.Events.Resumed()
}
