package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/dnsproxy/upstream"
	"github.com/custody-project/custody/egress"
	"github.com/custody-project/custody/netpolicy/fence"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/redact/pattern"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/vmm"
)

// logs is the directory of logs in the worker's root directory.
const logs = "/logs"

// The order of a worker's files.
const (
	fileConfig = iota
	fileStdout
	fileStderr
	fileState // only for a machine to restore
)

// Main is the worker. It returns when the run has ended.
func Main(ctx context.Context) error {
	conn, files, err := privsep.Enter(nil, fileState)
	if err != nil {
		return err
	}
	var c Config
	if err := json.NewDecoder(files[fileConfig]).Decode(&c); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- conn.Run(ctx) }()
	w := &worker{config: c, conn: conn, stdout: files[fileStdout], stderr: files[fileStderr]}
	if c.Restored && !c.Recover {
		unix.CloseOnExec(int(stateFD))
		w.state = os.NewFile(stateFD, "state")
	}
	do := w.run
	if c.Recover {
		do = w.recover
	}
	result, err := do(ctx)
	if err == nil {
		_, err = conn.Call(ctx, callEnded, result, nil)
	}
	conn.Close()
	return errors.Join(err, <-ran)
}

// stateFD is the descriptor of the state: descriptors 0 to 3 are those of every worker.
const stateFD = 4 + fileState

// worker is the run in the worker's process.
type worker struct {
	config         Config
	conn           *privsep.Conn
	stdout, stderr *os.File
	state          *os.File // nil: the machine boots
	redactor       *redact.Redactor
	record         *record
}

// record is the run's recorder and log.
type record struct {
	*audit.Recorder
	log *wal.Log
}

// Sync implements sandbox.Recorder.
func (r *record) Sync(ctx context.Context, seq uint64) error { return r.log.Sync(ctx, seq) }

func (w *worker) run(ctx context.Context) (result Result, err error) {
	if w.redactor, err = pattern.NewRedactor(w.config.TagKey); err != nil {
		return result, err
	}
	driver, err := remoteDriver(w.config.Facts.Tier, w.conn)
	if err != nil {
		return result, err
	}
	network, err := w.openNetwork(ctx)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, network.Close()) }()
	run := w.config.Settings.Run
	log, err := wal.Create(filepath.Join(logs, run), wal.Options{Run: run, Mode: w.config.Mode, Sealer: sealer.NewRemote(w.conn)})
	if err != nil {
		return result, fmt.Errorf("make the run's log: %w", err)
	}
	w.record.Recorder, w.record.log = audit.NewRecorder(log, w.redactor), log
	ended := w.carryOut(ctx, driver, network)
	closing := wal.Sealed
	if ended.Status == audit.StatusInterrupted {
		closing = wal.Interrupted
	}
	if err := log.Close(context.WithoutCancel(ctx), closing); err != nil {
		return result, fmt.Errorf("close the record: %w", err)
	}
	result = Result{ExitCode: ended.ExitCode, Status: ended.Status}
	if ended.Err != nil {
		result.Error = ended.Err.Error()
	}
	return result, nil
}

// openNetwork makes the sandbox's network. It records nothing before the sandbox starts.
func (w *worker) openNetwork(ctx context.Context) (*egress.Network, error) {
	p, err := project.Parse(project.Name, w.config.Project)
	if err != nil {
		return nil, err
	}
	policy, err := p.Policy()
	if err != nil {
		return nil, err
	}
	var servers []upstream.Server
	for _, text := range p.Resolvers {
		s, err := upstream.ParseServer(text)
		if err != nil {
			return nil, fmt.Errorf("resolvers: %w", err)
		}
		servers = append(servers, s)
	}
	w.record = new(record)
	prepared := egress.PrepareBy(func(o fence.Options) (*fence.Fence, error) { return fence.Open(ctx, w.conn, o) })
	network, err := prepared.Network(egress.Options{
		Run: w.config.Settings.Run, Policy: policy, Resolvers: servers, Recorder: w.record, Notice: w.notice,
		Redactor: w.redactor, Tokens: p.Limits.LLMTokens,
	})
	if err != nil {
		return nil, errors.Join(err, prepared.Close())
	}
	return network, nil
}

func (w *worker) notice(text string) { fmt.Fprintln(w.stderr, "custody: "+text) }

// carryOut runs the steps in the sandbox.
func (w *worker) carryOut(ctx context.Context, driver vmm.Driver, network *egress.Network) sandbox.Result {
	plan := sandbox.Plan{Time: w.config.Time, Facts: w.config.Facts}
	for _, s := range w.config.Steps {
		plan.Steps = append(plan.Steps, sandbox.Step{Name: s.Name, Argv: s.Argv, Env: s.Env, Dir: s.Dir, Stdout: w.stdout, Stderr: w.stderr})
	}
	parts := sandbox.Parts{
		Driver: driver, Image: vmm.Image{State: w.state}, Network: network,
		Recorder: w.record, Redactor: w.redactor, Notice: w.notice,
	}
	return sandbox.Run(ctx, parts, w.config.Settings, plan, func(*sandbox.Sandbox) {})
}
