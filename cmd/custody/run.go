package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/doctor"
	"github.com/custody-project/custody/egress"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/home"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/notify"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/secrets"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/scratch"
	"github.com/custody-project/custody/vmm/template"
)

type runCmd struct {
	Policy    string   `type:"path" placeholder:"FILE" help:"The project's file (default: custody.yaml here, if there is one)."`
	Template  string   `placeholder:"NAME" help:"What the sandbox starts from (default: the project's, else base)."`
	Isolation string   `placeholder:"TIER" help:"Require this isolation tier: qemu-kvm or qemu-tcg (default: the best that works)."`
	Workdir   string   `type:"existingdir" placeholder:"DIR" help:"Copy this directory to /workspace first, but for what its .custodyignore names. Links are never followed."`
	Env       []string `short:"e" sep:"none" placeholder:"NAME[=VALUE]" help:"Set a plain environment variable in all steps; NAME alone takes the value from here. It stands in the record: what is secret belongs in the project's secrets."`
	Out       string   `type:"path" placeholder:"DIR" help:"Copy /workspace's changed files to this directory at the end."`
	Secret    []string `placeholder:"NAME,..." help:"Give the command after -- this secret of the project's file. Without it, it gets none."`
	TTY       bool     `name:"tty" short:"t" help:"Give the command a terminal."`
	Trust     bool     `help:"Accept what the project's file asks for, without a question."`
	Cold      bool     `help:"Boot the VM instead of restoring its snapshot."`
	Quiet     bool     `short:"q" help:"Say nothing of the run beside its output and errors."`
	Metrics   string   `placeholder:"ADDRESS" help:"Serve Prometheus metrics there while the run goes on."`
	JSON      bool     `name:"json" help:"Print the run's records as NDJSON on stdout, after the run, instead of its output."`
	Command   []string `arg:"" optional:"" passthrough:"partial" help:"The command and its arguments, after --. Without one the project's steps run."`
}

// job is a run on its way: what the parts below need of each other.
type job struct {
	*app
	cmd      runCmd
	home     *home.Home
	project  project.File
	binds    [][]string // of each step of the run, the names of its secrets
	vars     [][]string // of each step of the run, its plain variables, NAME=VALUE
	template template.Template
	redactor *redact.Redactor
	policy   *netpolicy.Policy
	prepared *egress.Prepared
	brokers  *brokers
	issuer   *secrets.Issuer
	network  *egress.Network
	record   *home.Run
	meters   *meters
	notifier *notify.Notifier
	files    files

	mu      sync.Mutex // guards what follows
	runID   string     // empty before the run has one
	sandbox *sandbox.Sandbox
	stalled bool
	since   time.Time      // of the stall
	thaw    func()         // ends the count of it
	waits   []sandbox.Wait // stalls that ended before there was a sandbox
}

func (c runCmd) Run(a *app) error {
	if err := needHost(); err != nil {
		return err
	}
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	j := &job{app: a, cmd: c}
	var err error
	if j.meters, err = a.meter(c.Metrics); err != nil {
		return err
	}
	defer a.close(j.meters)
	err = j.load()
	if j.prepared != nil {
		defer j.close(j.prepared)
	}
	defer j.close(&j.files)
	defer func() { j.notifier.Close() }()
	if err != nil {
		return err
	}
	defer j.panicked()
	code, err := j.run()
	if err != nil {
		j.complain(err)
	}
	return exitCode(code)
}

// load reads the project's file and whatever a mistake can be made in, before anything is begun.
func (j *job) load() (err error) {
	j.project, err = project.Load(j.ctx, j.policyFile())
	if errors.Is(err, fs.ErrNotExist) && j.cmd.Policy == "" {
		j.project, err = project.Default(), nil
	}
	if err != nil {
		return err
	}
	if len(j.cmd.Command) == 0 && len(j.project.Steps) == 0 {
		return usageError{errors.New("there is nothing to run: give a command after --, or steps in " + project.Name)}
	}
	if j.project.SHA256 != "" && !j.cmd.Quiet {
		j.say("project file " + j.projectPath())
	}
	if err := j.bind(); err != nil {
		return err
	}
	if j.policy, err = j.project.Policy(); err != nil {
		return err
	}
	if err := j.readEnv(); err != nil {
		return err
	}
	if j.home, err = j.app.home(); err != nil {
		return err
	}
	if err := j.needTrust(j.home, &j.project, j.policyFile(), j.cmd.Trust); err != nil {
		return err
	}
	if err := j.needSources(); err != nil {
		return err
	}
	j.meters.spool(j.home)
	j.notifier = j.openNotifier(j.home, notify.Message{Project: j.project.Project})
	if err := j.lookAtFiles(); err != nil {
		return err
	}
	if err := doctor.NeedNetwork(j.ctx, j.home.Dir); err != nil {
		return err
	}
	j.prepared = egress.Prepare(j.ctx)
	var tag []byte
	err = home.WaitForRoom(j.ctx, j.stall, j.resume, func() (err error) {
		tag, err = j.home.TagKey()
		return err
	})
	if err != nil {
		return err
	}
	if j.redactor, err = newRedactor(tag); err != nil {
		return err
	}
	j.mask = j.redactor.String
	j.tidy(j.home)
	name := j.cmd.Template
	if name == "" {
		name = j.project.Template
	}
	store, err := j.templates(j.home)
	if err != nil {
		return err
	}
	j.template, err = store.Open(j.ctx, name)
	return err
}

// policyFile is the path of the project's file, which need not exist.
func (j *job) policyFile() string {
	if j.cmd.Policy == "" {
		return project.Name
	}
	return j.cmd.Policy
}

func (j *job) run() (int, error) {
	required, err := requirement(j.cmd.Isolation, j.project, j.home)
	if err != nil {
		return exitFailed, err
	}
	choice, err := j.picker(j.home, j.template).Pick(j.ctx, required)
	if err != nil {
		return exitFailed, err
	}
	driver := choice.Driver
	image, scratchDisk, cleanup, err := j.disks(driver)
	if err != nil {
		return exitFailed, err
	}
	defer cleanup()
	id := home.NewRunID(time.Now())
	j.mu.Lock()
	j.runID = id
	j.mu.Unlock()
	if err := j.broker(id); err != nil {
		return exitFailed, err
	}
	if j.network, err = j.wayOut(id); err != nil {
		return exitFailed, err
	}
	defer j.close(j.network)
	facts := audit.Lifecycle{
		Tenant: j.home.Config().Tenant, Project: j.project.Project, Template: j.template.Name, TemplateDigest: j.template.Digest(), PolicyDigest: digestOf(j.project),
		RulesetDigest: j.redactor.Digest(), Tier: driver.Tier(), TierNote: choice.Note, Mode: string(j.project.Record.Mode), Version: version(),
		Secrets: j.project.Sources(),
	}
	if j.project.SHA256 != "" {
		facts.ProjectDigest = "sha256-" + j.project.SHA256
	}
	facts.Host, _ = os.Hostname()
	j.record, err = j.home.Begin(j.ctx, home.RunOptions{
		ID: id, Mode: wal.Mode(j.project.Record.Mode), Redactor: j.redactor,
		Facts:   proof.Facts{Tenant: facts.Tenant, PolicyDigest: facts.PolicyDigest, RulesetDigest: facts.RulesetDigest, TemplateDigest: facts.TemplateDigest, Tier: facts.Tier},
		OnStall: j.stall, OnResume: j.resume, OnCommit: j.meters.commit(), Sighted: j.sighted,
		Posted: j.posted(id),
	})
	if err != nil {
		return exitFailed, err
	}
	parts := sandbox.Parts{
		Driver: driver, Image: image, Scratch: scratchDisk, Network: j.network, Secrets: j.issuer, Recorder: j.record, Redactor: j.redactor, Notice: j.say,
	}
	if !j.cmd.Quiet {
		parts.Progress = j.say
	}
	defer j.control()()
	return j.carryOut(parts, facts)
}

func (j *job) carryOut(parts sandbox.Parts, facts audit.Lifecycle) (int, error) {
	keep := context.WithoutCancel(j.ctx)
	j.record.Ship(keep)
	limits := j.project.Limits
	settings := sandbox.Settings{
		Run: j.record.ID, CPUs: limits.CPUs, Memory: limits.Memory, ScratchSize: limits.Disk, PIDs: limits.PIDs,
		Files:  channel.FileSettings{HashOver: j.project.Record.Files.HashOver, ReadOver: j.project.Record.Files.ReadOver},
		Output: j.project.Record.Output, Sensor: true,
	}
	term := j.terminal()
	plan := sandbox.Plan{Steps: j.steps(term), Workdir: j.files.in, Out: j.cmd.Out, Guard: j.files.guard, Time: limits.Time, Facts: facts, Review: j.review}
	j.mu.Lock()
	plan.Waits = j.waits
	j.mu.Unlock()
	res := sandbox.Run(j.ctx, parts, settings, plan, j.started)
	term.restore()
	j.revokeAll()
	closing := wal.Sealed
	if res.Status == audit.StatusInterrupted {
		closing = wal.Interrupted
	}
	recordErr, storeErr := j.record.Close(keep, closing)
	if storeErr != nil {
		j.late(storeErr)
	}
	j.notClosed(recordErr)
	if j.cmd.JSON {
		recordErr = errors.Join(recordErr, j.printRecords())
	}
	brief, cancel := context.WithTimeoutCause(keep, pruneTime, errors.New("the time for it at a run's end is over; `custody prune` goes on"))
	defer cancel()
	if _, err := j.home.Prune(brief, false); err != nil {
		j.say("what host.yaml no longer keeps is still here: " + err.Error())
	}
	if !j.cmd.Quiet {
		j.say(fmt.Sprintf("run %s (%s): custody timeline %s", j.record.ID, facts.Tier, j.record.ID))
	}
	return res.ExitCode, errors.Join(j.stepFailed(res), recordErr)
}

// stepFailed returns the error of a run, with the step of the project that failed and how.
func (j *job) stepFailed(res sandbox.Result) error {
	switch {
	case res.Step == "" || len(j.cmd.Command) > 0: // of a command, the exit code says all
		return res.Err
	case res.Err != nil:
		return fmt.Errorf("step %s: %w", res.Step, res.Err)
	case res.Timeout != nil:
		return fmt.Errorf("step %s failed: %w, exit code %d", res.Step, res.Timeout, res.ExitCode)
	}
	how := fmt.Sprintf("exit code %d", res.Exit.Code)
	if res.Exit.Signal != 0 {
		how = fmt.Sprintf("killed by %s, %s", unix.SignalName(syscall.Signal(res.Exit.Signal)), how)
	}
	if res.Exit.OOM {
		how += ", out of memory: raise limits.memory"
	}
	return fmt.Errorf("step %s failed: %s", res.Step, how)
}

// pruneTime bounds retention at the end of a run.
const pruneTime = time.Minute

// late reports that the log has the whole run, and the store or a checkpoint does not, in one line.
func (j *job) late(why error) {
	j.say("the run's log on this host is complete, but not all of it is in the store and under a checkpoint yet (" +
		strings.ReplaceAll(strings.TrimSpace(why.Error()), "\n", "; ") + "); `custody ship` or any later run continues there")
	if h := hint(why); h != "" {
		j.say("hint: " + h)
	}
}

// printRecords writes what the log holds, one record a line.
func (j *job) printRecords() error {
	out := bufio.NewWriter(j.stdout)
	for frame, err := range j.home.Frames(j.record.ID) {
		if err != nil {
			return fmt.Errorf("print the records: %w", err)
		}
		out.Write(frame.Body)
		out.WriteByte('\n')
	}
	return out.Flush()
}

// started is called with the sandbox before its guest runs.
func (j *job) started(s *sandbox.Sandbox) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sandbox = s
	if j.stalled {
		s.Hold(j.ctx, stallReason)
	}
}

const stallReason = "the record cannot be written"

// stall freezes the VM: in strict mode nothing may happen that is not recorded.
func (j *job) stall(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.notifyStall(err)
	if j.project.Record.Mode != project.Strict {
		j.say(stallReason + " (" + err.Error() + "): going on, what is lost will be declared (record.mode: degrade)")
		return
	}
	j.say(stallReason + " (" + err.Error() + "): the sandbox is frozen until it can")
	if h := hint(err); h != "" {
		j.say("hint: " + h)
	}
	j.stalled, j.since, j.thaw = true, time.Now().UTC(), j.meters.freeze()
	if j.sandbox != nil {
		j.sandbox.Hold(j.ctx, stallReason)
	}
}

func (j *job) resume() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.say("the record can be written again")
	if j.stalled {
		j.thaw()
	}
	if j.stalled && j.sandbox == nil {
		j.waits = append(j.waits, sandbox.Wait{From: j.since, To: time.Now().UTC(), Reason: stallReason})
	}
	j.stalled = false
	if j.sandbox != nil {
		if err := j.sandbox.Release(j.ctx, stallReason); err != nil {
			j.say("thaw: " + err.Error())
		}
	}
}

// disks opens what the VM starts from and makes its scratch disk. cleanup
// closes and wipes them.
func (j *job) disks(d template.Driver) (vmm.Image, *os.File, func(), error) {
	var image vmm.Image
	var err error
	if j.cmd.Cold {
		image, err = coldImage(j.ctx, j.template, shapeOf(j.project))
	} else {
		image, err = j.template.Image(j.ctx, d, shapeOf(j.project))
	}
	if err != nil {
		return image, nil, nil, err
	}
	var disk *os.File
	err = home.WaitForRoom(j.ctx, j.stall, j.resume, func() (err error) {
		if image.Disk != nil {
			disk, err = scratch.Clone(j.home.Dir, image.Disk)
		} else {
			disk, err = scratch.New(j.ctx, j.home.Dir, j.home.Blanks(), j.project.Limits.Disk)
		}
		return err
	})
	if err != nil {
		image.Close()
		return image, nil, nil, err
	}
	return image, disk, func() {
		if err := errors.Join(scratch.Wipe(disk), image.Close()); err != nil {
			j.complain(err)
		}
	}, nil
}

// steps are the command's one step, or the project's.
func (j *job) steps(t *terminal) []sandbox.Step {
	base := sandbox.Step{
		Env: j.environ(), Dir: "/workspace", TTY: t.size(), Stdin: t.in, Stdout: j.stdout, Stderr: j.stderr, Signals: t.signals, Resizes: t.resizes,
		Live: term.IsTerminal(int(os.Stdout.Fd())),
	}
	if j.cmd.JSON {
		base.Stdout, base.Stderr = nil, nil
	}
	if len(j.cmd.Command) > 0 {
		base.Name, base.Argv, base.Secrets = "main", j.cmd.Command, j.binds[0]
		base.Vars = j.vars[0]
		return []sandbox.Step{base}
	}
	var steps []sandbox.Step
	for i, s := range j.project.Steps {
		step := base
		step.Name, step.Argv, step.Secrets = s.Name, []string{"/bin/sh", "-c", s.Run}, j.binds[i]
		step.Vars = j.vars[i]
		step.Time = s.Time
		if s.Workdir != "" {
			step.Dir = s.Workdir
		}
		steps = append(steps, step)
	}
	return steps
}

func (j *job) environ() []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "USER=root", "LOGNAME=root",
		"LANG=C.UTF-8", "SHELL=/bin/sh", "CUSTODY_RUN=" + j.record.ID,
	}
	if term := os.Getenv("TERM"); j.cmd.TTY && term != "" {
		env = append(env, "TERM="+term)
	}
	if j.policy.OpensTLS() {
		env = append(env, channel.TrustEnv()...)
	}
	return append(env, j.template.Env...)
}

// digestOf is the digest of what a project's file allows.
func digestOf(p project.File) string {
	policy, err := p.Policy()
	if err != nil {
		panic(err) // Load has checked it
	}
	return policy.Digest()
}
