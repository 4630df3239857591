package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/audit/wal/remote"
	"github.com/custody-project/custody/egress"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/redact/pattern"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/secrets"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/workspace/transfer"
)

// Main is the worker. It waits until it is given to a run, and returns when the run has ended.
func Main(ctx context.Context) error {
	i := newIdle()
	host, _, err := privsep.Enter(i.handlers(), 0)
	if err != nil {
		return err
	}
	i.host = host
	debug.SetMemoryLimit(Memory) // the garbage collector works harder before the control group's limit is reached
	running := make(chan error, 1)
	go func() { running <- host.Run(context.WithoutCancel(ctx)) }()
	err = i.wait(ctx)
	host.Close()
	return errors.Join(err, <-running)
}

// wait waits for a run and carries it out. It returns an error if the machine of a warm worker dies before.
func (i *idle) wait(ctx context.Context) error {
	var died <-chan struct{}
	for {
		select {
		case files := <-i.given:
			return i.carryOut(ctx, files)
		case w := <-i.warmed:
			died = w.sandbox.Done()
		case <-died:
			return errors.New("the machine of the warm sandbox has died")
		case <-i.host.Ended():
			return nil
		}
	}
}

// carryOut carries out the run that the worker was given to, in its warm sandbox if it has one.
func (i *idle) carryOut(ctx context.Context, files []*os.File) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &worker{host: i.host, warm: i.current(), cancel: cancel, signals: make(chan syscall.Signal, 16), resizes: make(chan channel.Winsize, 1)}
	if err := w.take(files); err != nil {
		return err
	}
	i.mu.Lock()
	i.worker = w
	i.mu.Unlock()
	running := make(chan error, 1)
	go func() { running <- w.conn.Run(context.WithoutCancel(ctx)) }()
	do := w.run
	if w.order.Recover {
		do = w.recover
	}
	result, err := do(ctx)
	report := outcomeOf(result)
	report.Unbegun = faultOf(err)
	if err := w.silence(); err != nil {
		return err
	}
	_, err = w.conn.Call(context.WithoutCancel(ctx), callEnded, report, nil)
	w.conn.Close()
	return errors.Join(err, <-running)
}

// take uses the files of the assignment.
func (w *worker) take(files []*os.File) error {
	if err := dup(files[fileMessages], os.Stderr); err != nil {
		return fmt.Errorf("use another standard error: %w", err)
	}
	w.stdin, w.stdout, w.stderr = files[fileStdin], files[fileStdout], files[fileStderr]
	if len(files) > fileState {
		w.state = files[fileState]
	}
	if err := privsep.FromMemory(files[fileOrder], &w.order); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	socket, err := privsep.Socket(files[fileOwner])
	if err != nil {
		return fmt.Errorf("connection to the owner of the run: %w", err)
	}
	handlers := w.handlers()
	if w.order.Session {
		w.processes = newProcesses(w)
		maps.Copy(handlers, w.processes.handlers())
		maps.Copy(handlers, newFiles(w.processes).handlers())
		maps.Copy(handlers, w.processes.portHandlers())
		maps.Copy(handlers, suspender{w}.handlers())
	}
	w.conn = privsep.New(socket, handlers)
	w.conn.Kinds = kinds
	w.files = remote.New(w.conn)
	return nil
}

// silence closes the output of the run: its owner waits for that. What this program prints later is lost.
func (w *worker) silence() error {
	return errors.Join(unix.Dup3(int(os.Stdout.Fd()), int(os.Stderr.Fd()), 0), w.stdout.Close(), w.stderr.Close())
}

// dup makes to refer to what from does, and closes from.
func dup(from, to *os.File) error {
	defer from.Close()
	raw, err := from.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.Dup3(int(fd), int(to.Fd()), 0) })
	return errors.Join(err, failed)
}

// worker is the run in the worker's process.
//
//	Main --> opening --sandbox started--> live --run or recover returns--> ended
type worker struct {
	order                 order
	host                  *privsep.Conn // to the privileged process
	conn                  *privsep.Conn // to the owner of the run
	warm                  *warm         // nil: the run starts its machine
	files                 remote.FS     // of the log
	stdin, stdout, stderr *os.File
	state                 *os.File // nil: the machine boots
	cancel                context.CancelCauseFunc
	signals               chan syscall.Signal
	resizes               chan channel.Winsize

	redactor  *redact.Redactor
	record    *record
	issuer    *secrets.Issuer // nil: the run has no secrets
	network   *egress.Network
	reports   *reports
	processes *processes // nil: the run is no session

	mu      sync.Mutex       // guards the fields below
	sandbox *sandbox.Sandbox // nil before it has started
	stalled bool             // the record cannot be written, and the sandbox must be frozen
}

// record is the run's recorder and log.
type record struct {
	*audit.Recorder
	log   *wal.Log
	ready chan struct{} // closed when log is set; the log can call back before
}

func newRecord() *record { return &record{ready: make(chan struct{})} }

// open sets the log.
func (r *record) open(log *wal.Log, red *redact.Redactor) {
	r.log, r.Recorder = log, audit.NewRecorder(log, red)
	close(r.ready)
}

// durable returns the seq of the last durable record.
func (r *record) durable() uint64 {
	<-r.ready
	return r.log.Durable()
}

// Record implements sandbox.Recorder. In degrade mode it also returns when the record cannot be written; the gap is declared later.
func (r *record) Record(ctx context.Context, ev audit.Event) (uint64, error) {
	seq, err := r.Recorder.Record(ctx, ev)
	return seq, goOn(err)
}

// Post implements sandbox.Recorder.
func (r *record) Post(ctx context.Context, ev audit.Event) (uint64, error) {
	seq, err := r.Recorder.Post(ctx, ev)
	return seq, goOn(err)
}

// Sync implements sandbox.Recorder.
func (r *record) Sync(ctx context.Context, seq uint64) error { return goOn(r.log.Sync(ctx, seq)) }

// goOn removes the errors that report dropped events in degrade mode.
func goOn(err error) error {
	if errors.Is(err, wal.ErrStalled) || errors.Is(err, wal.ErrDropped) {
		return nil
	}
	return err
}

// run carries out the run. An error means that no run began.
func (w *worker) run(ctx context.Context) (result Result, err error) {
	if w.redactor, err = pattern.NewRedactor(w.order.TagKey); err != nil {
		return result, err
	}
	if w.warm == nil {
		w.warm = &warm{machine: w.order.machine(), network: prepareNetwork(ctx, w.host)}
	}
	defer w.warm.network.Close() // unless the run's network has it
	if err := w.warm.fits(w.order); err != nil {
		return result, err
	}
	driver, err := remoteDriver(w.warm.machine.Tier, w.host)
	if err != nil {
		return result, err
	}
	w.record = newRecord()
	w.reports = newReports(w.conn, w.record.durable)
	defer w.reports.close()
	if err := w.openIssuer(); err != nil {
		return result, err
	}
	if w.network, err = w.openNetwork(); err != nil {
		return result, err
	}
	watch := &sealer.Watch{Sealer: sealer.NewRemote(w.host), Wait: w.order.KeyWait}
	log, err := wal.Create(remote.Dir, w.logOptions(watch))
	if err != nil {
		return result, errors.Join(fmt.Errorf("begin run: %w", err), w.network.Close())
	}
	w.record.open(log, w.redactor)
	w.record.OnSighted(w.sighted)
	if w.order.Notify {
		w.record.OnPosted(w.posted)
	}
	w.reports.call(callLive, none{}, nil)
	result.Result = w.carryOut(ctx, driver)
	keep := context.WithoutCancel(ctx)
	w.revokeAll(keep)
	closing := wal.Sealed
	if result.Status == audit.StatusInterrupted {
		closing = wal.Interrupted
	}
	result.Record = watch.Close(keep, log, closing)
	if err := w.network.Close(); err != nil {
		w.reports.problem(err)
	}
	return result, nil
}

// logOptions are the options of the run's log.
func (w *worker) logOptions(s wal.Sealer) wal.Options {
	o := wal.Options{
		Run: w.order.Settings.Run, Mode: w.order.Mode, Sealer: s, FS: w.files, OnStall: w.stall, OnResume: w.resume,
		OnCommit: w.reports.committed, OnSeal: w.reports.sealed,
	}
	if w.order.Spool {
		o.Room = w.reports.room
	}
	return o
}

// openNetwork makes the sandbox's network. It records nothing before the sandbox starts.
func (w *worker) openNetwork() (*egress.Network, error) {
	policy, err := PolicyOf(w.order.Rules)
	if err != nil {
		return nil, err
	}
	servers, err := ServersOf(w.order.Resolvers)
	if err != nil {
		return nil, err
	}
	o := egress.Options{
		Run: w.order.Settings.Run, Policy: policy, Resolvers: servers, Recorder: w.record, Notice: w.notice,
		Redactor: w.redactor, Tokens: w.order.Tokens,
	}
	if w.issuer != nil {
		o.Credentials = w.issuer
	}
	if w.order.Charged {
		o.Account = w.reports.account
	}
	return w.warm.network.Network(o)
}

// notice reports text to the user.
func (w *worker) notice(text string) { w.reports.text(callNotice, w.redactor.String(text)) }

// carryOut runs the steps in the sandbox.
func (w *worker) carryOut(ctx context.Context, driver vmm.Driver) sandbox.Result {
	plan := sandbox.Plan{Time: w.order.Time, Facts: w.order.Facts, Waits: w.order.Waits, Steps: w.steps(), Review: w.review}
	files := transfer.NewClient(w.conn)
	if w.processes != nil {
		plan.Session = w.processes.serve
	}
	if in := w.order.In; in != nil {
		plan.In = sandbox.In{Source: files, Dir: in.Dir, Size: in.Size}
	}
	if w.order.Out != "" {
		plan.Out = sandbox.Out{Destination: files, Dir: w.order.Out}
	}
	parts := sandbox.Parts{
		Network: w.network, Recorder: w.record, Redactor: w.redactor, Notice: w.notice,
	}
	if w.issuer != nil {
		parts.Secrets = w.issuer
	}
	if w.order.Progress {
		parts.Progress = func(text string) { w.reports.text(callProgress, w.redactor.String(text)) }
	}
	s := w.order.Settings
	start := func(ctx context.Context) (*sandbox.Warm, error) {
		if w.warm.sandbox != nil {
			return w.warm.sandbox, nil
		}
		return sandbox.Start(ctx, sandbox.Machine{
			ID: s.Run, Driver: driver, Image: vmm.Image{State: w.state}, CPUs: s.CPUs, Memory: s.Memory, ScratchSize: s.ScratchSize,
			DiskRate: s.DiskRate, NetworkRate: s.NetworkRate, Notice: w.notice,
		})
	}
	return sandbox.Run(ctx, start, parts, s, plan, func(s *sandbox.Sandbox) { w.started(ctx, s) })
}

// steps returns the steps, connected to the streams of the run's console.
func (w *worker) steps() (list []sandbox.Step) {
	for _, s := range w.order.Steps {
		list = append(list, sandbox.Step{
			Name: s.Name, Argv: s.Argv, Env: s.Env, Vars: s.Vars, Dir: string(s.Dir), Secrets: s.Secrets, Time: s.Time, TTY: w.order.Terminal,
			Live: w.order.Live, Stdin: w.stdin, Stdout: w.stdout, Stderr: w.stderr, Signals: w.signals, Resizes: w.resizes,
		})
	}
	return list
}
