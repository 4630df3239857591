package run

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/custody-project/custody/audit/proof/statement"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/notify"
)

// Run executes the run and returns when its record is closed. An error means that no run began. If ctx is done, the
// run ends as interrupted, and its record is closed as well.
func (j *Job) Run(ctx context.Context) (Result, error) {
	if j.id = j.o.ID; j.id == "" {
		j.id = host.NewRunID(time.Now())
	}
	j.freezer.begin(j.id)
	if err := j.openBrokers(ctx); err != nil {
		return Result{}, err
	}
	defer j.closeBrokers(ctx)
	facts := j.facts()
	if err := j.reserve(ctx, facts); err != nil {
		return Result{}, err
	}
	res, err := j.carryOut(ctx, facts)
	for _, err := range []*error{&res.Err, &res.Late} {
		if *err != nil {
			*err = j.messages.masked(*err)
		}
	}
	return res, err
}

// facts returns the description of the run for the first event of the record.
func (j *Job) facts() audit.Lifecycle {
	p, d := j.o.Project, j.details
	facts := audit.Lifecycle{
		Tenant: j.o.tenant(), Project: p.Project, Template: d.Template, TemplateDigest: d.TemplateDigest,
		PolicyDigest: j.policy.Digest(), RulesetDigest: j.messages.redactor.Digest(), Tier: d.Tier, TierNote: d.TierNote,
		Mode: string(p.Record.Mode), Version: j.o.Version, Secrets: p.Sources(), Reason: d.Cold,
	}
	if p.SHA256 != "" {
		facts.ProjectDigest = "sha256-" + p.SHA256
	}
	if base := j.o.Base; base != nil {
		if facts.ProjectDigest != base.Digest {
			facts.NarrowingDigest = facts.ProjectDigest
		}
		facts.ProjectDigest, facts.ProjectVersion, facts.ProjectAuthor = base.Digest, base.Number, base.Author
	}
	if r := j.o.Resume; r != nil {
		facts.Parent = &r.Parent
	}
	facts.Host, _ = os.Hostname()
	return facts
}

// manifestFacts returns the facts of a run for the manifests of its record.
func manifestFacts(f audit.Lifecycle) statement.Facts {
	return statement.Facts{Tenant: f.Tenant, PolicyDigest: f.PolicyDigest, RulesetDigest: f.RulesetDigest, TemplateDigest: f.TemplateDigest, Tier: f.Tier}
}

// mode is the behavior of the run while its record cannot be written.
func (j *Job) mode() wal.Mode { return wal.Mode(j.o.Project.Record.Mode) }

// reserve prepares the run's record, which the worker writes.
func (j *Job) reserve(ctx context.Context, facts audit.Lifecycle) (err error) {
	o := host.RunOptions{
		ID: j.id, Mode: j.mode(), Redactor: j.messages.redactor, Facts: manifestFacts(facts),
		OnStall: j.freezer.stalled, OnResume: j.freezer.resumed,
	}
	if j.o.Meters != nil {
		o.OnCommit = j.o.Meters.Commit
	}
	j.record, err = host.Reserve(ctx, j.o.Home, o)
	return err
}

// carryOut runs the steps in a sandbox, whose worker closes the record, and ships the record. An error means that no run began.
func (j *Job) carryOut(ctx context.Context, facts audit.Lifecycle) (Result, error) {
	keep := context.WithoutCancel(ctx)
	j.record.Ship(keep)
	var console Console
	detach := func() {}
	if j.o.Attach != nil {
		console, detach = j.o.Attach()
	}
	j.freezer.live()
	ended, err := j.work(ctx, facts, console)
	detach()
	j.session.close()
	closing := wal.Sealed
	if ended.Status == audit.StatusInterrupted {
		closing = wal.Interrupted
	}
	recordErr, storeErr := j.record.End(keep, closing)
	if err != nil {
		return Result{}, errors.Join(err, recordErr)
	}
	recordErr = errors.Join(ended.Record, recordErr)
	if recordErr != nil {
		j.notifier.Send(notify.Message{Type: notify.Verify, Severity: "error", Run: j.id, Detail: "the record could not be closed: " + j.Mask(recordErr.Error())})
	}
	return Result{ID: j.id, Tier: facts.Tier, ExitCode: ended.ExitCode, Err: errors.Join(j.stepError(ended.Result), recordErr), Late: storeErr}, nil
}
