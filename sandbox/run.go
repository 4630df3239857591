package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
)

// Plan is a run from its first step to its last.
type Plan struct {
	Steps []Step
	// Session, if set, is run in place of Steps.
	Session Session
	In      In
	Out     Out
	Time    time.Duration
	Waits   []Wait // the times in which the record could not be written before the run began
	// Facts are the fields of the run's first event: project, template, digests, tier, mode.
	Facts audit.Lifecycle
	// Review is called after the VM has ended and before the run's end is recorded. It can record
	// findings about the whole record. Its error is reported and does not fail the run. May be nil.
	Review func(context.Context) error
}

// In is what is copied to /workspace before the first step.
type In struct {
	Source channel.Source // nil: nothing is copied
	Dir    string         // its path, for the record and messages
	Size   channel.Size   // of the files, measured before the run
}

// Out is where /workspace's changed files are copied after the last step.
type Out struct {
	Destination channel.Destination // nil: nothing is copied
	Dir         string              // its path, for the record and messages
}

// Wait is a time in which a run could not begin because the record could not be
// written. It is recorded as a freeze of the VM, although the VM did not exist yet.
type Wait struct {
	From, To time.Time
	Reason   string
}

// Result is how a run ended.
type Result struct {
	ExitCode int
	Status   audit.Status
	Err      error // why the run failed; nil if Status is done
	// Step is the name of the step that failed, "" if none did. Exit is how its command ended; it is not set if
	// Err is.
	Step string
	Exit channel.Exit
	// Timeout is set, and ExitCode is ExitTimeout, if the step reached its own time limit. The run then still copied files out.
	Timeout *StepTimeout
}

// Exit codes of a run that did not end with a command's exit code.
const (
	ExitTimeout = 124 // limits.time or a step's time was reached; timeout(1) has the same code
	ExitFailed  = 125 // Custody failed
)

// ErrTimeout means that a run reached its time limit.
var ErrTimeout error = timeout{}

type timeout struct{}

func (timeout) Error() string        { return "limits.time was reached" }
func (timeout) Is(target error) bool { return target == context.DeadlineExceeded }

// Run records the start, takes a sandbox from start, runs the steps of the plan
// until one fails, and records the end. It calls ready with the sandbox
// before the guest has an identity. It does not close the record, which makes the end durable.
func Run(ctx context.Context, start func(context.Context) (*Warm, error), parts Parts, settings Settings, plan Plan, ready func(*Sandbox)) Result {
	began := time.Now()
	keep := context.WithoutCancel(ctx)
	ctx, cancel := context.WithTimeoutCause(ctx, plan.Time, ErrTimeout)
	defer cancel()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)

	res, err := carryOut(ctx, abort, start, parts, settings, plan, ready)
	res.Err = err
	res.Status = audit.StatusDone
	if res.Err != nil {
		res.Status = statusOf(res.Err)
		res.ExitCode = ExitFailed
		switch res.Status {
		case audit.StatusTimeout:
			res.ExitCode = ExitTimeout
		case audit.StatusPaused:
			res.ExitCode = 0
		}
	}
	if plan.Review != nil {
		if err := plan.Review(keep); err != nil {
			parts.Notice("the record was not reviewed: " + err.Error())
		}
	}
	end := audit.Lifecycle{Phase: audit.PhaseEnd, Status: res.Status, ExitCode: &res.ExitCode, DurationNS: int64(time.Since(began))}
	if res.Err != nil {
		end.Reason = res.Err.Error()
	}
	if _, err := parts.Recorder.Post(keep, runEvent(&end)); err != nil {
		res.Err = errors.Join(res.Err, err)
	}
	return res
}

func runEvent(l *audit.Lifecycle) audit.Event {
	return audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindRun, Lifecycle: l}
}

func (w Wait) events() [2]audit.Event {
	freeze := audit.Event{Time: w.From, Observer: audit.Host, Kind: audit.KindVM, VM: &audit.VM{Op: "freeze", Reason: w.Reason}}
	thaw := freeze
	thaw.Time, thaw.VM = w.To, &audit.VM{Op: "thaw", Reason: w.Reason, DurationNS: int64(w.To.Sub(w.From))}
	return [2]audit.Event{freeze, thaw}
}

// carryOut takes the sandbox while the run's start becomes durable. The
// guest gets its identity only after that.
func carryOut(ctx context.Context, abort context.CancelCauseFunc, start func(context.Context) (*Warm, error), parts Parts, settings Settings, plan Plan, ready func(*Sandbox)) (res Result, err error) {
	if parts.Network == nil {
		parts.Network = unplugged{}
	}
	defer parts.Network.End()
	type started struct {
		warm *Warm
		err  error
	}
	vm := make(chan started, 1)
	go func() {
		w, err := start(ctx)
		vm <- started{w, err}
	}()
	unrecorded := recordStart(ctx, parts.Recorder, plan)
	s := <-vm
	if s.err != nil {
		return res, s.err
	}
	keep := context.WithoutCancel(ctx)
	if unrecorded != nil {
		return res, errors.Join(fmt.Errorf("record the start: %w", unrecorded), s.warm.Close(keep))
	}
	sb, err := s.warm.Assign(ctx, parts, settings, abort)
	if err != nil {
		return res, errors.Join(err, s.warm.Close(keep))
	}
	defer func() { err = errors.Join(err, sb.Close(keep)) }()
	ready(sb)
	// The guest's network interface is down until Begin has returned. The first step waits for that.
	var opening sync.WaitGroup
	var unopened error
	opening.Go(func() { unopened = parts.Network.Begin(ctx) })
	defer opening.Wait()
	opened := func() error {
		opening.Wait()
		return unopened
	}
	return sb.perform(ctx, plan, opened)
}

// recordStart records the start of the run, and returns when it is durable.
func recordStart(ctx context.Context, r Recorder, plan Plan) error {
	start := plan.Facts
	start.Phase = audit.PhaseStart
	for _, s := range plan.Steps {
		start.Steps = append(start.Steps, s.Name)
	}
	events := []audit.Event{runEvent(&start)}
	for _, w := range plan.Waits {
		pair := w.events()
		events = append(events, pair[:]...)
	}
	var seq uint64
	for _, ev := range events {
		var err error
		if seq, err = r.Post(ctx, ev); err != nil {
			return err
		}
	}
	return r.Sync(ctx, seq)
}

func (s *Sandbox) perform(ctx context.Context, plan Plan, opened func() error) (res Result, err error) {
	if err := s.Identify(ctx); err != nil {
		return res, err
	}
	if err := opened(); err != nil {
		return res, fmt.Errorf("network: %w", err)
	}
	files := copier{s.warm.guest(), s.parts.Recorder, s.parts.Notice, s.parts.Progress}
	if plan.In.Source != nil {
		if err := files.in(ctx, plan.In); err != nil {
			return res, s.warm.diagnose(fmt.Errorf("copy %s in: %w", plan.In.Dir, err))
		}
	}
	if plan.Session != nil {
		if err := s.serve(ctx, plan.Session); err != nil {
			return res, err
		}
	}
	for _, step := range plan.Steps {
		exit, err := s.Step(ctx, step)
		if late := new(StepTimeout); errors.As(err, &late) && ctx.Err() == nil && s.warm.guest().Err() == nil {
			res = Result{ExitCode: ExitTimeout, Step: step.Name, Timeout: late}
			break
		}
		if err != nil {
			return Result{Step: step.Name}, err
		}
		if exit.Error != "" {
			s.parts.Notice(exit.Error)
		}
		if exit.Code != 0 {
			res = Result{ExitCode: exit.Code, Step: step.Name, Exit: exit}
			break
		}
	}
	if plan.Out.Destination != nil {
		if err := files.out(ctx, plan.Out); err != nil {
			return Result{}, s.warm.diagnose(fmt.Errorf("copy to %s: %w", plan.Out.Dir, err))
		}
	}
	return res, nil
}
