// Package sandbox runs the steps of a run in a VM and records them: it
// starts the VM, wakes the guest, runs the steps, and freezes the VM while
// the record cannot be written.
package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"
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
	// Tap is the machine's TAP (see vmm.Machine), and Trust the certificate that the guest must trust (PEM), if any.
	Tap() *os.File
	Trust() []byte
	// Begin records the policy and allows the connections that it permits.
	Begin(ctx context.Context) error
	// Step sets the step to which later events belong; "": none.
	Step(name string)
	// Attempted receives an attempt to connect that the sensor observed.
	Attempted(f *audit.Flow)
	// Executed receives an exec that the sensor observed, and adds the LLM API call that requested it.
	Executed(x *audit.Exec)
	// End denies all connections and records the end of each flow.
	End()
}

// Parts are what a sandbox needs. The caller closes them; the sandbox
// owns only the VM that it starts.
type Parts struct {
	Driver   vmm.Driver
	Image    vmm.Image
	Scratch  *os.File
	Network  Network // nil: the machine's network interface is not connected
	Secrets  Secrets // nil: steps cannot have secrets
	Recorder Recorder
	Redactor *redact.Redactor
	// Notice reports a line of text to the user. It may be called at any time.
	Notice func(string)
	// Progress does the same for the progress of long operations; nil: progress is not reported.
	Progress func(string)
}

// Settings are the ID and the limits of a sandbox.
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
	Sensor      bool
}

// Sandbox is a running VM with its record.
//
//	       Open                              Close
//	-------------> awake --Step--> busy ----------------> gone
//	                 ^               |                     ^
//	                 +---------------+                     |
//	                   command ended         the VM died: ErrVMDied
//
// In each of these states it is frozen while there is any hold (see holds).
type Sandbox struct {
	parts    Parts
	settings Settings
	vm       vmm.VM
	guest    *channel.Client
	holds    *holds
	procs    procs
	output   quota
	watch    sync.WaitGroup
	closing  chan struct{}
	abort    context.CancelCauseFunc

	credentials credentials
	running     running
	observed    observation
	// turn is held while a step begins, while the run ends, and during a Dump, so that these
	// exclude each other. It guards over.
	turn sync.Mutex
	over bool // the run is ending
}

// ErrVMDied means that the VM ended although Close was not called.
var ErrVMDied = vmm.ErrDied

// wakeTimeout bounds the guest's handshake, which takes some 10 ms.
const wakeTimeout = 30 * time.Second

// Start starts the VM. Wake then makes the guest usable; until then a restored VM is frozen.
// The sandbox calls abort with the reason when the run must end.
func Start(ctx context.Context, p Parts, s Settings, abort context.CancelCauseFunc) (*Sandbox, error) {
	began := time.Now()
	vm, err := p.Driver.Start(ctx, vmm.Machine{
		ID: s.Run, Image: p.Image, CPUs: s.CPUs, Memory: s.Memory, Scratch: p.Scratch, Tap: p.Network.Tap(), HashOver: s.Files.HashOver,
		DiskRate: s.DiskRate, NetworkRate: s.NetworkRate,
	})
	if err != nil {
		return nil, err
	}
	sb := &Sandbox{
		parts: p, settings: s, vm: vm, closing: make(chan struct{}), abort: abort,
		holds: newHolds(vm, p.Image.State != nil, p.Recorder, p.Notice), output: quota{left: s.Output},
	}
	sb.observed.recorder = p.Recorder
	sb.observed.driver, _ = vm.(vmm.Observer)
	sb.credentials = credentials{issuer: p.Secrets, notice: p.Notice, holds: sb.holds, running: &sb.running}
	op := "restore"
	if p.Image.State == nil {
		op = "boot"
	}
	if err := sb.post(ctx, audit.VM{Op: op, Driver: p.Driver.Name(), Tier: p.Driver.Tier(), DurationNS: int64(time.Since(began))}); err != nil {
		return nil, errors.Join(err, vm.Destroy(context.WithoutCancel(ctx)))
	}
	return sb, nil
}

// Wake lets the guest run and sends it its time, randomness and identity.
func (s *Sandbox) Wake(ctx context.Context) error {
	if s.parts.Image.State == nil {
		if err := channel.AwaitReady(ctx, s.vm.Channel()); err != nil {
			return s.diagnose(fmt.Errorf("boot the guest: %w", err))
		}
	} else if err := s.holds.release(ctx, startHold); err != nil {
		return err
	}
	s.watch.Go(func() { s.holds.watchDisk(s.closing) })
	wake, err := s.settings.wake(s.parts.Network.Trust())
	if err != nil {
		return err
	}
	if s.observed.byHost() {
		wake.Sensor = false
	}
	limited, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	s.guest, err = channel.Connect(limited, s.vm.Channel(), wake, s.observe)
	if err != nil {
		return s.diagnose(fmt.Errorf("wake the guest: %w", err))
	}
	s.watch.Go(func() {
		if err := s.observed.run(context.WithoutCancel(ctx), s.observe); err != nil {
			s.abort(err) // the workload must not continue unobserved
		}
	})
	return nil
}

// wake returns the message that wakes the guest, with its time, randomness, identity and limits.
func (s Settings) wake(trust []byte) (channel.Wake, error) {
	random := make([]byte, 64+16)
	if _, err := rand.Read(random); err != nil {
		return channel.Wake{}, err
	}
	return channel.Wake{
		Run: s.Run, Time: time.Now().UTC(), Entropy: random[:64], MachineID: hex.EncodeToString(random[64:]),
		Hostname: hostname(s.Run), Scratch: s.ScratchSize,
		Limits: channel.Limits{PIDs: s.PIDs, Memory: s.Memory}, Files: s.Files, Sensor: s.Sensor,
		Trust: trust,
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
	var errs []error
	if s.guest != nil {
		// An error is ignored: the VM is destroyed in any case.
		s.guest.Close()
	}
	errs = append(errs, s.vm.Destroy(ctx))
	s.watch.Wait()
	for _, ev := range s.procs.unfinished() {
		_, err := s.parts.Recorder.Post(ctx, ev)
		errs = append(errs, err)
	}
	errs = append(errs, s.output.declare(ctx, s.parts.Recorder),
		s.post(ctx, audit.VM{Op: "destroy", Driver: s.parts.Driver.Name(), DurationNS: int64(time.Since(began))}))
	return errors.Join(errs...)
}

// diagnose adds the reason of the VM's end, if it has ended, to an error of the channel.
func (s *Sandbox) diagnose(err error) error {
	select {
	case <-s.vm.Done():
		return fmt.Errorf("%w: %w (%w)", ErrVMDied, s.vm.Err(), err)
	case <-time.After(diedWithin):
		return err
	}
}

// diedWithin is how much later than the end of its channel the end of a VM can be noticed: on a busy host the kernel takes
// that long to free its memory. A VM whose channel alone has ended is rare.
const diedWithin = 3 * time.Second

func (s *Sandbox) post(ctx context.Context, v audit.VM) error {
	_, err := s.parts.Recorder.Post(ctx, audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindVM, VM: &v})
	return err
}
