// Package sandbox runs the steps of a run in a VM and records them. A sandbox begins as a Warm one: a VM that runs,
// with a guest that is awake and belongs to no run. With an identity it becomes the Sandbox of one run, which runs the steps, and
// freezes the VM while the record cannot be written.
package sandbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/vmm"
)

// Recorder adds events to the run's record.
type Recorder interface {
	// Record returns when the event is durable.
	Record(ctx context.Context, ev audit.Event) (uint64, error)
	// Post returns when the event has a sequence number. The event is durable when Sync has returned for that number.
	Post(ctx context.Context, ev audit.Event) (uint64, error)
	Sync(ctx context.Context, seq uint64) error
}

// Network connects the sandbox to the outside. It drops all packets before Begin.
type Network interface {
	// Trust is the certificate that the guest must trust (PEM), if any.
	Trust() []byte
	// Begin records the policy and allows the connections that it permits.
	Begin(ctx context.Context) error
	// Step sets the step to which later events belong; "": none or several run.
	Step(name string)
	// Attempted receives an attempt of a step to connect that the sensor observed.
	Attempted(step string, f *audit.Flow)
	// Executed receives an exec that the sensor observed, and adds the LLM API call that requested it.
	Executed(x *audit.Exec)
	// End denies all connections and records the end of each flow.
	End()
}

// Parts are what a sandbox needs for a run. The caller closes them.
type Parts struct {
	Network  Network // nil: the machine's network interface is not connected
	Secrets  Secrets // nil: steps cannot have secrets
	Recorder Recorder
	Redactor *redact.Redactor
	// Notice reports a line of text to the user. It may be called at any time.
	Notice func(string)
	// Progress does the same for the progress of long operations; nil: progress is not reported.
	Progress func(string)
}

// Settings are the ID and the limits of a run, and the shape of its sandbox.
type Settings struct {
	Run         string
	CPUs        int
	Memory      int64 // bytes
	ScratchSize int64 // bytes
	PIDs        int
	DiskRate    int64 // bytes per second of each disk; 0: no limit
	NetworkRate int64 // bytes per second in each direction; 0: no limit
	Files       channel.FileSettings
	Output      int64 // maximum number of bytes of output to record, over all steps
	// Silence is how long the guest may give no sign of life while its VM runs; 0: any time.
	Silence time.Duration
	Sensor  bool
	// Resumed is set if the machine starts from a saved state: its processes run from Thaw on.
	Resumed *Resumed
}

// Sandbox is a running VM with its record.
//
//	  Assign               Identify                              Close
//	-----------> assigned -----------> ready --Step--> busy ----------------> gone
//	                                     ^               |                     ^
//	                                     +---------------+                     |
//	                                       command ended         the VM died: ErrVMDied
//
// In each of these states it is frozen while there is any hold (see holds).
type Sandbox struct {
	warm     *Warm
	parts    Parts
	settings Settings
	vm       vmm.VM
	holds    *holds
	procs    procs
	output   quota
	watch    sync.WaitGroup
	closing  chan struct{}
	abort    context.CancelCauseFunc

	credentials credentials
	running     *running
	activity    // of the processes
	steps       steps
	observed    observation
	// turn is held while a step begins, while the run ends, and during a Dump, so that these
	// exclude each other. It guards over.
	turn sync.Mutex
	over bool // the run is ending
	// suspended is set from the begin of Suspend to the end of Continue; it is changed while turn is held.
	suspended atomic.Bool
	identity  channel.Identity // that the guest has; guarded by turn
}

// ErrVMDied means that the VM ended although Close was not called.
var ErrVMDied = vmm.ErrDied

// Assign makes a warm sandbox that of a run, and records its VM. Identify then makes it usable. After an error, the caller
// closes w. The sandbox calls abort with the reason when the run must end.
func (w *Warm) Assign(ctx context.Context, p Parts, s Settings, abort context.CancelCauseFunc) (*Sandbox, error) {
	if p.Network == nil {
		p.Network = unplugged{}
	}
	sb := &Sandbox{
		warm: w, parts: p, settings: s, vm: w.vm, closing: make(chan struct{}), abort: abort,
		holds: newHolds(w.vm, p.Recorder, p.Notice), running: newRunning(), output: quota{left: s.Output},
	}
	sb.observed.driver, sb.observed.recorder = w.observer, p.Recorder
	sb.steps.network = p.Network
	sb.activity.warm = w
	sb.credentials = credentials{issuer: p.Secrets, notice: p.Notice, holds: sb.holds, running: sb.running}
	if err := sb.post(ctx, w.started()); err != nil {
		return nil, err
	}
	if !w.sandbox.CompareAndSwap(nil, sb) {
		return nil, errors.New("the sandbox belongs to a run already")
	}
	sb.watch.Go(func() { sb.holds.watchDisk(sb.closing) })
	return sb, nil
}

// identifyTimeout bounds the guest's answer to its identity, which takes some 10 ms, and far more where the host itself is emulated.
const identifyTimeout = 2 * time.Minute

// Identify sends the guest its time, randomness and identity, when nothing holds the VM.
func (s *Sandbox) Identify(ctx context.Context) error {
	if err := s.holds.wait(ctx); err != nil {
		return err
	}
	id, err := s.settings.identity(s.parts.Network.Trust())
	if err != nil {
		return err
	}
	if s.observed.byHost() {
		id.Sensor = false
	}
	if r := s.settings.Resumed; r != nil {
		id.MachineID, id.Hostname = cmp.Or(r.MachineID, id.MachineID), cmp.Or(r.Hostname, id.Hostname)
		s.steps.remember(r.Steps...)
		channel.Suspension{Client: s.warm.guest()}.Recall(r.Steps...)
	}
	s.identity = id
	limited, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	if err := s.warm.guest().Identify(limited, id); err != nil {
		return s.warm.diagnose(err)
	}
	if err := s.observed.beginRun(limited, vmm.Observed{Run: s.settings.Run, HashOver: s.settings.Files.HashOver}); err != nil {
		return err
	}
	if s.settings.Silence > 0 {
		s.watch.Go(func() { beat{s}.run(context.WithoutCancel(ctx)) })
	}
	return nil
}

// identity returns the guest's time, randomness, identity and limits.
func (s Settings) identity(trust []byte) (channel.Identity, error) {
	random := make([]byte, 64+16)
	if _, err := rand.Read(random); err != nil {
		return channel.Identity{}, err
	}
	return channel.Identity{
		Run: s.Run, Time: time.Now().UTC(), Entropy: random[:64], MachineID: hex.EncodeToString(random[64:]), Hostname: hostname(s.Run),
		Limits: channel.Limits{PIDs: s.PIDs, Memory: s.Memory}, Files: s.Files, Sensor: s.Sensor, Trust: trust,
	}, nil
}

// hostname returns the run's ID as a host name, which can have 63 characters.
func hostname(run string) string { return run[:min(len(run), 63)] }

// Hold freezes the VM for a reason, until Release is called with the same reason.
// A VM that cannot be frozen is destroyed, because the workload must not continue unrecorded.
func (s *Sandbox) Hold(ctx context.Context, reason string) { s.holds.add(ctx, reason) }

// Release removes a reason. The VM runs again when no reason is left.
func (s *Sandbox) Release(ctx context.Context, reason string) error {
	return s.holds.release(ctx, reason)
}

// Close destroys the VM and records an exit for
// each process without one, and the VM's destruction.
func (s *Sandbox) Close(ctx context.Context) error {
	began := time.Now()
	s.turn.Lock()
	s.over = true
	s.turn.Unlock()
	close(s.closing)
	errs := []error{s.warm.Close(ctx)}
	s.watch.Wait()
	for _, ev := range s.procs.unfinished() {
		_, err := s.parts.Recorder.Post(ctx, ev)
		errs = append(errs, err)
	}
	errs = append(errs, s.output.declare(ctx, s.parts.Recorder),
		s.post(ctx, audit.VM{Op: "destroy", Driver: s.warm.machine.Driver.Name(), DurationNS: int64(time.Since(began))}))
	return errors.Join(errs...)
}

func (s *Sandbox) post(ctx context.Context, v audit.VM) error {
	_, err := s.parts.Recorder.Post(ctx, audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindVM, VM: &v})
	return err
}
