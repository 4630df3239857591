package run

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/custody-project/custody/audit/proof/statement"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/egress"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/notify"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/scratch"
	"github.com/custody-project/custody/vmm/template"
	"github.com/custody-project/custody/vmm/tier"
)

// Run executes the run and returns when its record is closed. An error means that no run began. If ctx is done, the
// run ends as interrupted, and its record is closed as well.
func (j *Job) Run(ctx context.Context) (Result, error) {
	required, err := RequiredTier(j.o.Isolation, j.o.Project, j.o.Home)
	if err != nil {
		return Result{}, err
	}
	choice, err := TierPicker(j.o.Home, j.template, j.messages.notice).Pick(ctx, required)
	if err != nil {
		return Result{}, err
	}
	image, disk, err := j.disks(ctx, choice.Driver)
	if err != nil {
		return Result{}, err
	}
	defer func() {
		if err := errors.Join(scratch.Wipe(disk), image.Close()); err != nil {
			j.messages.problem(err)
		}
	}()
	j.id = host.NewRunID(time.Now())
	j.freezer.begin(j.id)
	if err := j.openIssuer(ctx); err != nil {
		return Result{}, err
	}
	if j.network, err = j.openNetwork(); err != nil {
		return Result{}, err
	}
	defer func() {
		if err := j.network.Close(); err != nil { // does not change the run's result
			j.messages.problem(err)
		}
	}()
	facts := j.facts(choice)
	if err := j.openRecord(ctx, facts); err != nil {
		return Result{}, err
	}
	defer j.control()()
	res := j.carryOut(ctx, facts, sandbox.Parts{
		Driver: choice.Driver, Image: image, Scratch: disk, Network: j.network, Secrets: j.issuer, Recorder: j.record, Redactor: j.messages.redactor,
		Notice: j.messages.notice, Progress: j.messages.progress,
	})
	for _, err := range []*error{&res.Err, &res.Late} {
		if *err != nil {
			*err = j.messages.masked(*err)
		}
	}
	return res, nil
}

// disks opens the VM's image and makes its scratch disk.
func (j *Job) disks(ctx context.Context, d template.Driver) (image vmm.Image, disk *os.File, err error) {
	shape := Shape(j.o.Project)
	if j.o.Cold || !d.Snapshots() {
		image, err = coldImage(ctx, j.template, shape)
	} else {
		image, err = j.template.Image(ctx, d, shape)
	}
	if err != nil {
		return image, nil, err
	}
	h := j.o.Home
	err = host.WaitForRoom(ctx, j.freezer.stalled, j.freezer.resumed, func() (err error) {
		if image.Disk != nil {
			disk, err = scratch.Clone(h.Dir, image.Disk)
		} else {
			disk, err = scratch.New(ctx, h.Dir, h.Blanks(), j.o.Project.Limits.Disk)
		}
		return err
	})
	if err != nil {
		return image, nil, errors.Join(err, image.Close())
	}
	return image, disk, nil
}

// openNetwork makes the sandbox's network in the prepared fence. The record is opened later, but the network records
// nothing before the sandbox starts.
func (j *Job) openNetwork() (*egress.Network, error) {
	servers, err := Resolvers(j.o.Project)
	if err != nil {
		return nil, err
	}
	return j.prepared.Network(egress.Options{
		Run: j.id, Policy: j.policy, Resolvers: servers, Recorder: recorder{j}, Notice: j.messages.notice,
		Credentials: j.issuer, Redactor: j.messages.redactor, Tokens: j.o.Project.Limits.LLMTokens,
		Rate: j.o.Project.Limits.NetworkRate,
	})
}

// facts returns the description of the run for the first event of the record.
func (j *Job) facts(c tier.Choice) audit.Lifecycle {
	p := j.o.Project
	facts := audit.Lifecycle{
		Tenant: j.o.Home.Config().Tenant, Project: p.Project, Template: j.template.Name, TemplateDigest: j.template.Digest(),
		PolicyDigest: j.policy.Digest(), RulesetDigest: j.messages.redactor.Digest(), Tier: c.Driver.Tier(), TierNote: c.Note,
		Mode: string(p.Record.Mode), Version: j.o.Version, Secrets: p.Sources(),
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
	facts.Host, _ = os.Hostname()
	return facts
}

func (j *Job) openRecord(ctx context.Context, facts audit.Lifecycle) (err error) {
	o := host.RunOptions{
		ID: j.id, Mode: wal.Mode(j.o.Project.Record.Mode), Redactor: j.messages.redactor,
		Facts: statement.Facts{
			Tenant: facts.Tenant, PolicyDigest: facts.PolicyDigest, RulesetDigest: facts.RulesetDigest, TemplateDigest: facts.TemplateDigest, Tier: facts.Tier,
		},
		OnStall: j.freezer.stalled, OnResume: j.freezer.resumed, Sighted: j.sighted, Posted: j.posted(),
	}
	if j.o.Meters != nil {
		o.OnCommit = j.o.Meters.Commit
	}
	j.record, err = j.o.Home.Begin(ctx, o)
	return err
}

// carryOut runs the steps in a sandbox, and closes the record.
func (j *Job) carryOut(ctx context.Context, facts audit.Lifecycle, parts sandbox.Parts) Result {
	keep := context.WithoutCancel(ctx)
	j.record.Ship(keep)
	p := j.o.Project
	settings := sandbox.Settings{
		Run: j.id, CPUs: p.Limits.CPUs, Memory: p.Limits.Memory, ScratchSize: p.Limits.Disk, PIDs: p.Limits.PIDs,
		DiskRate: p.Limits.DiskRate, NetworkRate: p.Limits.NetworkRate,
		Files:  channel.FileSettings{HashOver: p.Record.Files.HashOver, ReadOver: p.Record.Files.ReadOver},
		Output: p.Record.Output, Sensor: true,
	}
	var console Console
	detach := func() {}
	if j.o.Attach != nil {
		console, detach = j.o.Attach()
	}
	plan := sandbox.Plan{
		Steps: j.sandboxSteps(console), In: j.files.in, Out: j.files.out, Time: p.Limits.Time, Facts: facts, Review: j.review,
	}
	plan.Waits = j.freezer.waited()
	ended := sandbox.Run(ctx, parts, settings, plan, func(s *sandbox.Sandbox) { j.freezer.started(ctx, s) })
	detach()
	j.revokeAll(keep)
	closing := wal.Sealed
	if ended.Status == audit.StatusInterrupted {
		closing = wal.Interrupted
	}
	recordErr, storeErr := j.record.Close(keep, closing)
	if recordErr != nil {
		j.notifier.Send(notify.Message{Type: notify.Verify, Severity: "error", Run: j.id, Detail: "the record could not be closed: " + j.Mask(recordErr.Error())})
	}
	return Result{ID: j.id, Tier: facts.Tier, ExitCode: ended.ExitCode, Err: errors.Join(j.stepError(ended), recordErr), Late: storeErr}
}

// posted returns the function that sends notifications of the run's events, or nil if there are none to send.
func (j *Job) posted() audit.Posted {
	if j.notifier == nil {
		return nil
	}
	return func(ev audit.Event, seq uint64) {
		if ev.VM != nil && ev.VM.Reason == stallReason {
			return // sent at the beginning of the stall, which is recorded at its end
		}
		if m, ok := notify.Of(ev, j.id, seq); ok {
			j.notifier.Send(m)
		}
	}
}
