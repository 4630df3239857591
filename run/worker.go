package run

import (
	"context"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/notify"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/worker"
)

// settings are those of the run's sandbox.
func (j *Job) settings() sandbox.Settings {
	p := j.o.Project
	var resumed *sandbox.Resumed
	if r := j.o.Resume; r != nil {
		resumed = &r.Resumed
	}
	return sandbox.Settings{
		Run: j.id, CPUs: p.Limits.CPUs, Memory: p.Limits.Memory, ScratchSize: p.Limits.Disk, PIDs: p.Limits.PIDs,
		DiskRate: p.Limits.DiskRate, NetworkRate: p.Limits.NetworkRate,
		Files:  channel.FileSettings{HashOver: p.Record.Files.HashOver, ReadOver: p.Record.Files.ReadOver},
		Output: p.Record.Output, Silence: p.Limits.Silence, Sensor: true,
		Resumed: resumed,
	}
}

// config describes the run to its worker.
func (j *Job) config(facts audit.Lifecycle, c Console) (worker.Config, error) {
	p := j.o.Project
	config := worker.Config{
		Settings: j.settings(), Facts: facts, Mode: j.mode(), Tokens: p.Limits.LLMTokens, Charged: j.o.Charge != nil, Steps: j.workerSteps(c), Out: j.o.Out,
		Terminal: c.Window, Live: c.Live, Time: p.Limits.Time, Waits: j.freezer.waited(), TagKey: j.tag,
		Secrets: workerSecrets(p), Anomaly: string(p.Anomaly), Spool: j.o.Home.Config().Spool > 0, Progress: j.o.Progress != nil, Notify: j.notifier != nil,
	}
	if j.o.Workdir != "" {
		config.In = &worker.In{Dir: j.o.Workdir, Size: j.files.Size()}
	}
	servers, err := hostd.Resolvers(p)
	for _, s := range servers {
		config.Resolvers = append(config.Resolvers, s.String())
	}
	return config, err
}

// workerSteps returns the steps with the environment that each gets.
func (j *Job) workerSteps(c Console) (list []worker.Step) {
	env := j.environ(c)
	for _, s := range j.steps {
		list = append(list, worker.Step{Name: s.name, Argv: s.argv, Dir: audit.Text(s.dir), Env: env, Vars: s.vars, Secrets: s.secrets, Time: s.time})
	}
	return list
}

// workerSecrets returns the project's secrets without their sources.
func workerSecrets(p project.File) (list []worker.Secret) {
	for _, b := range Bindings(p) {
		scheme, _, _ := strings.Cut(b.From, ":")
		s := worker.Secret{Name: b.Name, Scheme: scheme, Deliver: b.Deliver}
		for _, pattern := range p.Secrets[b.Name].Hosts {
			s.Hosts = append(s.Hosts, pattern.String())
		}
		list = append(list, s)
	}
	return list
}

// work carries out the run in a worker.
func (j *Job) work(ctx context.Context, facts audit.Lifecycle, c Console) (worker.Result, error) {
	config, err := j.config(facts, c)
	if err != nil {
		return worker.Result{}, err
	}
	o := worker.Options{
		Config: config, Policy: j.policy, Signed: manifestFacts(facts), Sandbox: j.sandbox, Log: j.record.Files, Brokers: j.credentials,
		Files: j.files, Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr, Signals: c.Signals, Resizes: c.Resizes,
		Events: events{j}, Ready: j.open,
	}
	if serve := j.o.Serve; serve != nil {
		o.Serve = func(ctx context.Context, s *worker.Session) {
			l := &Live{job: j, session: s}
			if r := j.o.Resume; r != nil {
				l.count.Store(r.Processes)
			}
			serve(ctx, l)
		}
	}
	return worker.Run(ctx, o)
}

// events passes on what the run's worker reports.
type events struct{ job *Job }

var _ worker.Events = events{}

// Notice implements worker.Events.
func (e events) Notice(text string) { e.job.messages.notice(text) }

// Progress implements worker.Events.
func (e events) Progress(text string) { e.job.messages.progress(text) }

// Problem implements worker.Events.
func (e events) Problem(err error) { e.job.messages.problem(err) }

// Stalled implements worker.Events.
func (e events) Stalled(err error) { e.job.freezer.stalled(err) }

// Resumed implements worker.Events.
func (e events) Resumed() { e.job.freezer.resumed() }

// Committed implements worker.Events.
func (e events) Committed(records, bytes int, took time.Duration, durable uint64) {
	e.job.record.Committed(records, bytes, took, durable)
}

// Sealed implements worker.Events.
func (e events) Sealed() { e.job.record.Sealed() }

// Masked implements worker.Events.
func (e events) Masked(values int) {
	if m := e.job.o.Meters; m != nil {
		m.Redact(values)
	}
}

// Notify implements worker.Events.
func (e events) Notify(m notify.Message) {
	m.Run = e.job.id
	e.job.notifier.Send(m)
}

// Charge implements worker.Events.
func (e events) Charge(tokens int64) (why string, until time.Time) {
	if e.job.o.Charge == nil {
		return "", time.Time{}
	}
	return e.job.o.Charge(tokens)
}

// Room implements worker.Events.
func (e events) Room() error { return e.job.record.Room() }
