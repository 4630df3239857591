package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/run"
	"github.com/custody-project/custody/vmm/template"
)

// requestPolicy is the name of a request's policy in messages.
const requestPolicy = "the request's policy"

// Runs is a Runner that carries out runs on this host. Open, Notice and Problem must be set.
type Runs struct {
	Open    func() (*host.Host, error) // opens the host's state for one run
	Version string                     // of the program, for the record
	Meters  run.Meters
	// Sandboxes makes the sandboxes of runs; nil: this process does, as root, with StartWorker if it is set.
	Sandboxes   run.Sandboxes
	StartWorker hostd.StartWorker
	Templates   func(*host.Host) (template.Store, error) // nil: run.Templates
	// Notice and Problem get what the administrator should know. They may be called concurrently.
	Notice  func(string)
	Problem func(error)
}

// Check implements Runner.
func (r *Runs) Check(_ context.Context, q Request) (Terms, error) {
	o, err := r.options(q)
	if err != nil {
		return Terms{}, &Error{ErrInvalid, err.Error()}
	}
	l := o.Project.Limits
	return Terms{Project: o.Project.Project, Template: cmp.Or(o.Template, o.Project.Template), CPUs: l.CPUs, Memory: l.Memory, Time: l.Time, Idle: l.Idle, Lifecycle: o.Project.Lifecycle}, nil
}

// options returns the options of the run of a request.
func (r *Runs) options(q Request) (o run.Options, err error) {
	h, err := r.Open()
	if err != nil {
		return o, err
	}
	h.Warn = r.Notice
	o = run.Options{
		Home: h, Tenant: q.Tenant, Template: q.Template, Isolation: q.Isolation, Version: r.Version, Vetted: true, Notice: r.Notice, Problem: r.Problem, Meters: r.Meters,
		Sandboxes: r.Sandboxes, StartWorker: r.StartWorker,
	}
	var source run.Source
	if q.Project != "" {
		source.Project = &q.Project
	}
	if q.Policy != "" {
		source.File, source.Text = requestPolicy, []byte(q.Policy)
	}
	if err := o.SetSource(source); err != nil {
		return o, err
	}
	if q.Project == "" && q.Policy != "" && o.Base != nil {
		return o, fmt.Errorf("%s is of the registered project %s: name the project in the request", requestPolicy, o.Base.Project)
	}
	if o.Base == nil {
		if err := o.WithinDefaults(source); err != nil {
			return o, err
		}
	}
	return o, nil
}

// Run implements Runner.
func (r *Runs) Run(ctx context.Context, id string, q Request, a Allowance, from *run.Resume, serve func(context.Context, *run.Live)) (run.Result, error) {
	o, err := r.options(q)
	if err != nil {
		return run.Result{}, err
	}
	o.ID, o.Serve, o.Charge, o.Resume = id, serve, a.Charge, from
	if from != nil && from.Parent.Manifest == "" { // the service ended when the run was paused
		if from.Parent, err = proof.ParentOf(ctx, o.Home.RunDir(from.Parent.Run)); err != nil {
			return run.Result{}, err
		}
	}
	if from != nil {
		from.Parent.Op = audit.OpResume
	}
	if from != nil && from.Fork {
		from.Parent.Op = audit.OpFork
	}
	l := &o.Project.Limits
	l.DiskRate, l.NetworkRate = lower(l.DiskRate, a.DiskRate), lower(l.NetworkRate, a.NetworkRate)
	if o.Templates, err = r.templates(o.Home); err != nil {
		return run.Result{}, err
	}
	job, err := run.Prepare(ctx, o)
	if err != nil {
		return run.Result{}, err
	}
	res, err := job.Run(ctx)
	return res, errors.Join(err, job.Close())
}

// templates returns the templates of the host.
func (r *Runs) templates(h *host.Host) (template.Store, error) {
	if r.Templates != nil {
		return r.Templates(h)
	}
	return run.Templates(h, io.Discard)
}

// Parent implements Runner.
func (r *Runs) Parent(ctx context.Context, id string) (audit.Parent, error) {
	h, err := r.Open()
	if err != nil {
		return audit.Parent{}, err
	}
	return proof.ParentOf(ctx, h.RunDir(id))
}

// Discard implements Runner.
func (r *Runs) Discard(ctx context.Context, tenant, id string) error {
	states, err := r.states()
	if err != nil {
		return err
	}
	return states.Discard(ctx, tenant, id)
}

// Stored implements Runner.
func (r *Runs) Stored(ctx context.Context, tenant, id string) (run.Saved, error) {
	states, err := r.states()
	if err != nil {
		return run.Saved{}, err
	}
	return states.Stored(ctx, tenant, id)
}

// states returns the stored states of the host.
func (r *Runs) states() (states, error) {
	if s, ok := r.Sandboxes.(states); ok {
		return s, nil
	}
	h, err := r.Open()
	if err != nil {
		return nil, err
	}
	templates, err := r.templates(h)
	if err != nil {
		return nil, err
	}
	return &hostd.Host{Home: h, Templates: templates}, nil
}

// lower returns the lower one of two limits, of which 0 is none.
func lower(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
