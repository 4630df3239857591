package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/secrets"
)

// Step is one command with its terminal or pipes.
type Step struct {
	Name string
	Argv []string
	Env  []string // NAME=VALUE, of Custody and the template
	// Vars are the step's plain variables, NAME=VALUE. They replace those of Env and are recorded.
	Vars []string
	Dir  string
	User string // see channel.Command
	// Session runs the command concurrently with others, in the cell of the session. Its name is no other step's.
	Session bool
	// Attach makes the step continue a command of the session that has run since before Suspend. Its outputs
	// continue at these offsets of the record: stdout or the terminal, and stderr. If the command was started with secrets and
	// has Secrets again, they are minted again, and their files have the new values before Thaw lets it run. The
	// variables of processes that run cannot be replaced: a command that must continue reads the files.
	Attach  bool
	Offsets [2]int64
	Time    time.Duration // time limit of the step, including freezes; 0: only the run's limit
	Secrets []string      // names of the secrets that it gets
	TTY     *channel.Winsize
	Stdin   io.Reader // nil: end of file immediately
	// Stdout and Stderr receive the redacted output; nil discards it. With a TTY, all output goes to Stdout.
	Stdout, Stderr io.Writer
	// Live shows output after a short delay, except what could be the beginning of a value: a person
	// is watching. Otherwise output can be held back until more follows.
	Live    bool
	Signals <-chan syscall.Signal  // to forward to the command
	Resizes <-chan channel.Winsize // of the terminal
}

// signalled is the largest exit code that does not stand for a signal.
const signalled = 128

// killGrace is how long a command may take to end after SIGTERM.
const killGrace = 5 * time.Second

// reportGrace is how long the guest may take to report a command's end after SIGKILL.
// Its sensors take up to 10 s to hash the files that were closed last.
const reportGrace = 15 * time.Second

// Step runs a command in the sandbox and records its start, output and
// end. The error is nil if the command ran, even if its exit code is not 0. The step's
// secrets are minted before its start is recorded, so that their
// values are masked in the record, and revoked before its end is recorded.
func (s *Sandbox) Step(ctx context.Context, st Step) (channel.Exit, error) {
	began := time.Now()
	if err := s.takeTurn(ctx); err != nil {
		return channel.Exit{}, err
	}
	running := s.running.begin()
	defer running()
	lease, seq, err := s.begin(ctx, st)
	if err == nil {
		s.steps.begin(st.Name)
	}
	s.turn.Unlock()
	if err != nil {
		return channel.Exit{}, err
	}
	limited, cancel := st.limit(ctx)
	exit, err := s.observedCommand(limited, st, lease, seq, running)
	cancel()
	s.steps.end(st.Name)
	if lease != nil {
		if err := lease.End(context.WithoutCancel(ctx), "the step has ended"); err != nil {
			s.parts.Notice("the credentials of step " + st.Name + ": " + err.Error())
		}
	}
	end := &audit.Lifecycle{Phase: audit.PhaseEnd, Name: st.Name, Status: audit.StatusDone, DurationNS: int64(time.Since(began)), Reason: exit.Error}
	if err != nil {
		end.Status, end.Reason = statusOf(err), err.Error()
	} else {
		end.ExitCode = &exit.Code
	}
	// It becomes durable before the next step starts, or with the end of the run.
	_, recorded := s.parts.Recorder.Post(context.WithoutCancel(ctx), stepEvent(st.Name, end))
	return exit, errors.Join(err, recorded)
}

// observedCommand runs a command between the begin and the end of its observation by the host. It calls running as command does.
func (s *Sandbox) observedCommand(ctx context.Context, st Step, lease *secrets.Lease, seq uint64, running func()) (channel.Exit, error) {
	began, err := s.observed.beginStep(ctx, st.Name)
	defer began()
	if err != nil {
		return channel.Exit{}, err
	}
	exit, err := s.command(ctx, st, lease, seq, began, running)
	began()
	return exit, errors.Join(err, s.observed.endStep(context.WithoutCancel(ctx), st.Name))
}

// ErrStepTime means that a step reached its own time limit.
var ErrStepTime = errors.New("the step's time limit was reached")

// StepTimeout is ErrStepTime with the limit. It is a context.DeadlineExceeded too.
type StepTimeout struct{ Limit time.Duration }

// Error implements error.
func (e *StepTimeout) Error() string {
	return fmt.Sprintf("the step's time limit of %s was reached", e.Limit)
}

// Is reports whether target is context.DeadlineExceeded or ErrStepTime.
func (e *StepTimeout) Is(target error) bool {
	return target == context.DeadlineExceeded || target == ErrStepTime
}

// limit returns ctx with the step's time limit, if it has one.
func (st Step) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if st.Time == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, st.Time, &StepTimeout{st.Time})
}

// takeTurn waits until the VM is not frozen, and locks turn. While it is frozen, no
// credentials are minted: they might not be recorded, or expire unused.
func (s *Sandbox) takeTurn(ctx context.Context) error {
	for {
		if err := s.holds.wait(ctx); err != nil {
			return err
		}
		s.turn.Lock()
		if s.suspended.Load() {
			s.turn.Unlock()
			return ErrNotBegun
		}
		if !s.holds.frozen() {
			return nil
		}
		s.turn.Unlock()
	}
}

// begin mints the step's secrets and records its start. seq is the number of that record.
func (s *Sandbox) begin(ctx context.Context, st Step) (lease *secrets.Lease, seq uint64, err error) {
	if lease, err = s.credentials.bind(ctx, st); err != nil {
		return nil, 0, err
	}
	start := &audit.Lifecycle{Phase: audit.PhaseStart, Name: st.Name}
	if st.Attach {
		start.Reason = "it continues"
	}
	for _, a := range st.Argv {
		start.Argv = append(start.Argv, audit.Text(a))
	}
	for _, v := range st.Vars {
		start.Env = append(start.Env, audit.Text(v))
	}
	if seq, err = s.parts.Recorder.Record(ctx, stepEvent(st.Name, start)); err != nil {
		if lease != nil {
			err = errors.Join(err, lease.End(context.WithoutCancel(ctx), "the step did not start"))
		}
		return nil, 0, err
	}
	return lease, seq, nil
}

func stepEvent(step string, l *audit.Lifecycle) audit.Event {
	return audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindStep, Step: step, Lifecycle: l}
}

// statusOf returns the status of a run or step that ended with this error.
func statusOf(err error) audit.Status {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return audit.StatusTimeout
	case errors.Is(err, context.Canceled):
		return audit.StatusCancelled
	case errors.Is(err, ErrSuspended):
		return audit.StatusPaused
	case errors.Is(err, ErrVMDied), errors.Is(err, ErrSilent):
		return audit.StatusInterrupted
	}
	return audit.StatusFailed
}

// command runs the step's command, whose start has the number seq. It calls began when the guest has started the command, and running when
// all is connected with it.
func (s *Sandbox) command(ctx context.Context, st Step, lease *secrets.Lease, seq uint64, began, running func()) (channel.Exit, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	cmd := channel.Command{Step: st.Name, Argv: st.Argv, Env: st.environ(), Dir: st.Dir, TTY: st.TTY, User: st.User, Session: st.Session}
	var err error
	if cmd.Secrets, err = s.credentials.deliver(ctx, st.Name, lease); err != nil {
		return channel.Exit{}, fmt.Errorf("deliver the step's secrets: %w", err)
	}
	if lease != nil {
		cmd.Leased = true
		cmd.Refused = func(reason string) { lease.Refused(context.WithoutCancel(ctx), reason) }
	}
	proc, err := startCommand(ctx, s.warm.guest(), st, cmd)
	if st.Session { // else nothing runs concurrently, and the command has not started yet
		began()
	}
	for _, secret := range cmd.Secrets {
		clear(secret.Value)
	}
	if err != nil {
		return channel.Exit{}, s.warm.diagnose(fmt.Errorf("start the command: %w", err))
	}
	s.running.add(proc)
	defer func() {
		s.running.remove(proc)
		s.credentials.ended(st.Name, proc)
	}()
	// Output is recorded even after ctx is done: the command wrote it before.
	keep := context.WithoutCancel(ctx)
	var outputs sync.WaitGroup
	errs := make([]error, 2)
	done := make(chan struct{})
	var exit channel.Exit // set when done is closed, as is err
	killed := func() bool {
		<-done
		return err != nil || exit.Code > signalled
	}
	unread := make(chan struct{}, 1)
	follow := func(i int, name string, from io.Reader, to io.Writer) {
		p := &pump{offset: st.Offsets[i], unread: unread, ctx: keep, recorder: s.parts.Recorder, quota: &s.output, step: st.Name, stream: name, to: to, redact: s.parts.Redactor.Stream(), live: st.Live, killed: killed, seq: seq}
		p.printed = s.credentials.printed(st.Name)
		outputs.Go(func() { errs[i] = p.run(from) })
	}
	if st.TTY != nil {
		follow(0, "tty", proc.Stdout, st.Stdout)
	} else {
		follow(0, "stdout", proc.Stdout, st.Stdout)
		follow(1, "stderr", proc.Stderr, st.Stderr)
	}
	var control sync.WaitGroup
	control.Go(func() { s.control(keep, proc, st, unread, done) })
	if lease != nil {
		control.Go(func() { s.credentials.keep(keep, proc, lease, done, end) })
	}
	s.running.feed(proc, st.Stdin)
	running()

	exit, err = s.await(ctx, proc)
	var missing error
	if !ended(proc) && !errors.Is(err, ErrSuspended) {
		if ctx.Err() != nil {
			s.warm.guest().Close() // a frozen guest cannot report anything, and must not continue
		}
		missing = s.unreported(keep, st.Name)
	}
	close(done)
	control.Wait()
	outputs.Wait()
	if err != nil {
		return exit, errors.Join(s.warm.diagnose(err), missing)
	}
	return exit, errors.Join(errs...)
}

// unreported records a gap: the last events of the guest's sensors may be missing.
func (s *Sandbox) unreported(ctx context.Context, step string) error {
	_, err := s.parts.Recorder.Post(ctx, audit.Event{
		Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindGap, Step: step,
		Gap: &audit.Gap{Stage: audit.StageGuest, Cause: "the guest ended before its sensors had reported everything"},
	})
	return err
}

// environ returns Env with Vars added. Vars replace variables of the same name.
func (st Step) environ() []string {
	replaced := make(map[string]bool, len(st.Vars))
	name := func(kv string) string {
		name, _, _ := strings.Cut(kv, "=")
		return name
	}
	for _, v := range st.Vars {
		replaced[name(v)] = true
	}
	env := slices.DeleteFunc(slices.Clone(st.Env), func(kv string) bool { return replaced[name(kv)] })
	return append(env, st.Vars...)
}

// control forwards signals and window sizes until the command has ended. If the reader of its output has gone,
// the command gets SIGPIPE.
func (s *Sandbox) control(ctx context.Context, proc *channel.Process, st Step, unread, done <-chan struct{}) {
	for {
		var err error
		select {
		case sig := <-st.Signals:
			err = proc.Signal(ctx, sig)
		case size := <-st.Resizes:
			err = proc.Resize(ctx, size)
		case <-unread:
			err = proc.Signal(ctx, syscall.SIGPIPE)
		case <-done:
			return
		}
		if err != nil {
			s.parts.Notice("the guest did not receive a signal or window size: " + err.Error())
		}
	}
}

// ended reports whether the guest has reported the command's end, and so all events of its sensors.
func ended(proc *channel.Process) bool {
	soon, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := proc.Wait(soon)
	return err == nil
}

// await waits for the command. When ctx is done, the command gets SIGTERM, then SIGKILL.
func (s *Sandbox) await(ctx context.Context, proc *channel.Process) (channel.Exit, error) {
	exit, err := proc.Wait(ctx)
	if err == nil || ctx.Err() == nil {
		return exit, err
	}
	graces := map[syscall.Signal]time.Duration{syscall.SIGTERM: killGrace, syscall.SIGKILL: reportGrace}
	if s.holds.frozen() {
		graces[syscall.SIGKILL] = killGrace
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), graces[sig])
		if err = proc.Signal(limited, sig); err == nil {
			exit, err = proc.Wait(limited)
		}
		cancel()
		if err == nil {
			break
		}
	}
	return exit, context.Cause(ctx)
}
