// Package worker runs one sandbox in a process without privileges, which parses everything that the guest and the network
// send: the channel to the guest, the monitor of its VM, DNS queries, and what the gateway proxies. It redacts and writes the run's log.
//
//	Run (root)                                             Main (worker: a uid of its own, no capabilities)
//	  fence.Namespace  <---- sockets, uplink ------------    fence.Fence, egress.Network
//	  Driver's Server  <---- start, end -----------------    the tier's Remote, sandbox.Run
//	  remote.Server    <---- files of the log -----------    wal.Log, audit.Recorder
//	  sealer.Signer    <---- sign a segment -------------    sealer.Remote
//	  brokers          <---- mint, renew, revoke --------    secrets.Issuer
//	  transfer.Server  <---- read and write files -------    the copies of the workspace
//	  Session          ----- policy, pause, signals ---->    worker
//	                                 privsep
package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/audit/wal/remote"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/privsep"
	brokers "github.com/custody-project/custody/secrets/remote"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/workspace/transfer"
)

// Options are what the privileged process needs, in addition to the worker's configuration.
type Options struct {
	Config
	Policy  *netpolicy.Policy
	Network *Network
	Driver  Driver
	Machine vmm.Machine // without its TAP
	Signer  *sealer.Signer
	Log     *remote.Server
	Brokers *brokers.Server  // nil: the run has no secrets
	Files   *transfer.Server // copies the directories that the configuration names
	// Stdin is the input of the steps, Stdout and Stderr receive their redacted output; nil: none, and discard.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Signals        <-chan syscall.Signal  // to forward to the commands
	Resizes        <-chan channel.Winsize // of the terminal
	Events         Events
	// Ready, if set, is called when the run has a log and can be controlled, before its steps.
	Ready func(*Session)
	// Start starts the worker: a program that calls Main.
	Start func(ctx context.Context, w privsep.Worker, handlers map[string]privsep.Handler) (*privsep.Process, error)
}

const (
	// workerMemory limits the worker's memory, in addition to what control groups of VMs allow their monitors.
	workerMemory = 256 << 20
	// endTime bounds how long a worker may take to end a run that was cancelled or has reached its time limit, unless the record cannot
	// be written. The end of a step takes 20 s, the brokers 10 s, a key that cannot sign 30 s.
	endTime = 2 * time.Minute
)

// ErrDied means that the worker ended before the run did. Its record has been closed as interrupted, unless there is
// another error.
var ErrDied = errors.New("the worker ended before the run did")

// Run carries out the run in a worker, and returns when the worker has closed the record and ended. If ctx is done, the worker ends
// the run. If the worker dies, the VM ends, and another worker closes the record. An error means that no run began.
func Run(ctx context.Context, o Options) (Result, error) {
	r := &run{Options: o, policy: o.Policy}
	r.Events = &watched{Events: o.Events}
	result, err := r.carryOut(ctx)
	if !errors.Is(err, ErrDied) {
		return result, err
	}
	if !o.Log.Begun() {
		return result, err
	}
	closed, failed := r.recover(context.WithoutCancel(ctx))
	closed.Result.Err = errors.Join(err, closed.Result.Err)
	closed.Record = errors.Join(closed.Record, failed)
	return closed, nil
}

// run is a run in the privileged process.
type run struct {
	Options
	causes causes

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

// carryOut runs the sandbox.
func (r *run) carryOut(ctx context.Context) (result Result, err error) {
	namespace, err := r.Network.open()
	if err != nil {
		return result, err
	}
	leave := func(close func() error) {
		if err := close(); err != nil { // it does not change the run's result
			r.Events.Problem(err)
		}
	}
	defer leave(r.Network.Close)
	if rate := r.Settings.NetworkRate; rate > 0 {
		if err := namespace.Limit(rate); err != nil {
			return result, fmt.Errorf("the sandbox's network: %w", err)
		}
	}
	m := r.Machine
	m.Tap, m.HashOver = namespace.Tap(), r.Settings.Files.HashOver
	m.DiskRate, m.NetworkRate = r.Settings.DiskRate, r.Settings.NetworkRate
	machine := r.Driver.NewServer(m)
	defer leave(machine.Close)
	handlers := namespace.Handlers(r.allowed)
	maps.Copy(handlers, machine.Handlers())
	maps.Copy(handlers, r.Files.Handlers())
	defer leave(r.Files.Close)
	orders := order{Config: r.Config, Rules: rules(r.Policy)}
	if r.Brokers != nil {
		defer leave(func() error { return r.Brokers.Close(ctx) })
		maps.Copy(handlers, r.Brokers.Handlers())
		orders.Brokers = r.Brokers.Brokers()
	}
	return r.wait(ctx, orders, handlers)
}

// recover closes the record of a worker that died.
func (r *run) recover(ctx context.Context) (Result, error) {
	if err := r.Log.Unlock(); err != nil {
		return Result{}, err
	}
	r.Stdin, r.Stdout, r.Stderr, r.Signals, r.Resizes, r.Ready = nil, nil, nil, nil, nil, nil
	orders := order{Config: r.Config, Recover: true, Last: r.Signer.Last()}
	orders.Restored = false
	return r.wait(ctx, orders, map[string]privsep.Handler{})
}

// wait starts a worker that can make these calls and those that every worker makes, and waits for the run's end.
func (r *run) wait(ctx context.Context, orders order, handlers map[string]privsep.Handler) (result Result, err error) {
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
	maps.Copy(handlers, r.Signer.Handlers())
	maps.Copy(handlers, eventHandlers(r.Events, &r.causes))
	console, err := r.openStreams()
	if err != nil {
		return result, err
	}
	defer console.close()
	config, err := privsep.Memory("order", orders)
	if err != nil {
		return result, err
	}
	defer config.Close()
	w := privsep.Worker{Files: append([]*os.File{config}, console.theirs...), Stderr: console.messages, Memory: workerMemory}
	if w.Binds, w.Env, err = trusted(os.Getenv); err != nil {
		return result, err
	}
	if orders.Restored {
		w.Files = append(w.Files, r.Machine.Image.State)
	}
	p, err := r.Start(ctx, w, r.causes.watch(handlers))
	if err != nil {
		return result, err
	}
	console.started()
	session := r.newSession(p)
	result, err = r.await(ctx, session, live, ended)
	session.close()
	closed := p.Close()
	console.wait()
	if err != nil {
		return result, errors.Join(err, closed)
	}
	if closed != nil { // the run has ended before: its result stays
		r.Events.Problem(closed)
	}
	return result, nil
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
		case o := <-ended:
			return o.result(&r.causes)
		case <-s.process.Done():
			return reported(ended, &r.causes)
		case <-s.process.Ended(): // a worker that violates the protocol is killed
			return reported(ended, &r.causes)
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
func reported(ended <-chan outcome, c *causes) (Result, error) {
	select {
	case o := <-ended:
		return o.result(c)
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
