// Package run carries out one run, from a checked project file to its sealed record. It starts a sandbox with its
// network and credentials, runs the steps in it, and closes the record and ships it to the store.
//
// [Options] describe a run and where its output goes. Callers do not need the packages that this one
// uses.
package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/notify"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/project/registry"
	"github.com/custody-project/custody/redact/pattern"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/secrets/remote"
	"github.com/custody-project/custody/vmm/template"
	"github.com/custody-project/custody/worker"
)

// Options describe a run. Home, Project, File, Templates, Notice and Problem must be set.
type Options struct {
	Home      *host.Host
	Templates template.Store

	Project project.File
	File    string // path of the project's file; relative sources of secrets are relative to its directory
	// Base is the registered project that the run is of; Project is its file, or one that narrows it. nil: Project is of
	// none. See SetProject.
	Base *registry.Registered
	// Command, if set, runs as the step "main" instead of the project's steps, with the project's secrets named in Secrets.
	Command []string
	Secrets []string
	// Serve, if set, makes the run a live one: it has no steps, and starts processes until Serve returns. ctx is done when the run has ended
	// otherwise.
	Serve func(context.Context, *Live)
	// Resume is the paused run whose processes a live run continues; nil: none.
	Resume *Resume
	Env    []project.Variable // of every step, in addition to the project's

	Tenant    string // for whom the run is carried out, one that Home serves; "": the host's own. It is set before SetProject.
	ID        string // of the run, see host.NewRunID; "": a new one
	Template  string // "": the project's
	Isolation string // the tier that the run must have, "": the best that works
	Cold      bool   // boot the VM instead of restoring its snapshot
	Workdir   string // directory to copy to /workspace before the first step; "": none
	Out       string // directory for the changed files of /workspace after the last step; "": none
	Version   string // of the program, for the record
	User      int    // the uid for whom the run is carried out
	// OpenFiles opens Workdir and Out; nil: OpenFiles.
	OpenFiles func(context.Context, FileSpec) (Files, error)

	// Accept reports whether the user accepts what an untrusted project file asks for. nil: no.
	Accept func(*Untrusted) bool
	// Vetted is set if the caller itself limits what the project's file asks for: it needs no acceptance.
	Vetted bool
	// Attach is called before the first step, and returns what the steps are connected to. Its second result is
	// called after the last step. nil: the steps have no input, and their output is only recorded.
	Attach func() (Console, func())

	// Notice reports something to the user, Problem an error that does not end the run. Progress, if set, reports how
	// far the run is. They may be called at any time, concurrently. Values of secrets are masked in their text.
	Notice   func(string)
	Progress func(string)
	Problem  func(error)
	Meters   Meters // nil: no metrics

	// Charge, if set, is called with LLM tokens that the run has used, also with 0. Until the time that it returns, if any, further LLM API
	// calls are denied; why is for the client.
	Charge func(tokens int64) (why string, until time.Time)

	// Sandboxes makes the sandbox; nil: this process does, with Templates, and StartWorker if it is set.
	Sandboxes   Sandboxes
	StartWorker hostd.StartWorker
}

// Sandboxes makes sandboxes; see hostd.Host.
type Sandboxes interface {
	Open(ctx context.Context, s hostd.Spec, e hostd.Events) (worker.Sandbox, hostd.Details, error)
}

// Meters counts what a run does. It is safe for concurrent use.
type Meters interface {
	Commit(records, bytes int, took time.Duration)
	Redact(values int)
	Freeze() (thaw func())
	Silent()
}

// Job is a run whose options were checked. It runs once.
//
//	Prepare --> prepared --Run--> running --> ended --Close--> closed
//	                |                                            ^
//	                +--------------------------------------------+
type Job struct {
	o        Options
	policy   *netpolicy.Policy
	steps    []step
	files    Files  // nil before they are open
	tag      []byte // key of the redactor
	notifier *notify.Notifier
	messages *messages
	freezer  *freezer
	sandbox  worker.Sandbox
	details  hostd.Details // of the sandbox

	// The fields below are set at the start of the run.
	id          string
	brokers     *Brokers
	credentials *remote.Server // nil: the project has no secrets
	record      *host.Run
	session     session
}

// Prepare checks the options of a run and opens what the run needs. It does not start
// the run. The caller closes the job.
func Prepare(ctx context.Context, o Options) (*Job, error) {
	j := &Job{o: o, messages: &messages{toNotice: o.Notice, toProgress: o.Progress, toProblem: o.Problem}}
	if err := j.prepare(ctx); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

func (j *Job) prepare(ctx context.Context) (err error) {
	var compiling sync.WaitGroup
	compiling.Go(func() { _, _ = pattern.New() }) // beside the checks: the first call takes a while
	defer compiling.Wait()
	if j.steps, err = (planner{&j.o, j.messages}).plan(); err != nil {
		return err
	}
	if j.policy, err = j.o.Project.Policy(); err != nil {
		return err
	}
	h := j.o.Home
	if err := h.ManifestLog().Served(); err != nil {
		return err
	}
	if err := j.o.checkBase(); err != nil {
		return err
	}
	if err := checkTrust(ctx, &j.o); err != nil {
		return err
	}
	if err := checkSources(ctx, &j.o, j.steps); err != nil {
		return err
	}
	j.notifier = h.Notifier(ctx, notify.Message{Tenant: j.o.tenant(), Project: j.o.Project.Project}, j.messages.notice)
	j.freezer = &freezer{notifier: j.notifier, messages: j.messages, meters: j.o.Meters, strict: j.o.Project.Record.Mode == project.Strict}
	if err := j.openFiles(ctx); err != nil {
		return err
	}
	opened := make(chan error, 1)
	go func() { opened <- j.openSandbox(ctx) }()
	return errors.Join(j.prepareRecord(ctx), <-opened)
}

// openSandbox makes the run's sandbox.
func (j *Job) openSandbox(ctx context.Context) error {
	s, err := j.o.Spec()
	if err != nil {
		return err
	}
	if r := j.o.Resume; r != nil {
		s.Resume = &hostd.Resume{Run: r.Parent.Run, Tenant: j.o.tenant(), Policy: j.policy.Digest(), Fork: r.Fork}
	}
	from := j.o.Sandboxes
	if from == nil {
		from = &hostd.Host{Home: j.o.Home, Templates: j.o.Templates, Start: j.o.StartWorker, Silent: j.silent}
	}
	e := hostd.Events{Notice: j.messages.notice, Progress: j.messages.progress, Stalled: j.freezer.stalled, Resumed: j.freezer.resumed}
	j.sandbox, j.details, err = from.Open(ctx, s, e)
	return err
}

// silent counts that the worker was killed because it gave no sign of life. The run's error has the reason.
func (j *Job) silent(error) {
	if j.o.Meters != nil {
		j.o.Meters.Silent()
	}
}

// prepareRecord opens what the run's record needs, and closes the records of runs whose process died.
func (j *Job) prepareRecord(ctx context.Context) error {
	h := j.o.Home
	err := host.WaitForRoom(ctx, j.freezer.stalled, j.freezer.resumed, func() (err error) {
		j.tag, err = h.TagKey()
		return err
	})
	if err != nil {
		return err
	}
	if j.messages.redactor, err = pattern.NewRedactor(j.tag); err != nil {
		return err
	}
	if err := Tidy(ctx, h, j.messages.notice); err != nil {
		j.messages.problem(err)
	}
	return nil
}

// Close releases what Prepare opened, and waits for messages that are being delivered.
func (j *Job) Close() error {
	var err error
	if j.record != nil {
		err = j.record.Release()
	}
	if j.sandbox != nil {
		err = errors.Join(err, j.sandbox.Close())
	}
	if j.files != nil {
		err = errors.Join(err, j.files.Close())
	}
	j.notifier.Close()
	return err
}

// Mask returns text with the values of secrets and what looks like one replaced. It is safe for concurrent use.
func (j *Job) Mask(text string) string { return j.messages.mask(text) }

// stepError returns why a step of the project failed.
func (j *Job) stepError(res sandbox.Result) error {
	switch {
	case res.Step == "" || len(j.o.Command) > 0: // the exit code reports the failure of a command
		return res.Err
	case res.Err != nil:
		return fmt.Errorf("step %s: %w", res.Step, res.Err)
	case res.Timeout != nil:
		return fmt.Errorf("step %s failed: %w, exit code %d", res.Step, res.Timeout, res.ExitCode)
	}
	return fmt.Errorf("step %s failed: %s", res.Step, describeExit(res.Exit))
}
