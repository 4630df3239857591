// Package sandbox runs one piece of work in one VM and keeps its record: it
// starts the VM, wakes the guest, runs the steps, and sees to it that nothing
// goes on that cannot be recorded.
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

// Recorder takes events into the run's record.
type Recorder interface {
	// Record returns when the event is durable.
	Record(ctx context.Context, ev audit.Event) (uint64, error)
	// Post returns when the event has its place; it is durable once Sync has returned for it.
	Post(ctx context.Context, ev audit.Event) (uint64, error)
	Sync(ctx context.Context, seq uint64) error
}

// Network is the sandbox's way out: nothing passes before Begin.
type Network interface {
	// Tap is the card's cable, and Trust the certificate that the guest has to trust (PEM), if any.
	Tap() *os.File
	Trust() []byte
	// Begin records the policy and opens what it allows.
	Begin(ctx context.Context) error
	// Step names the step under which what follows is recorded; empty for none.
	Step(name string)
	// Attempted takes what the guest's sensor saw of an attempt to connect.
	Attempted(f *audit.Flow)
	// Executed takes what the sensor saw of an exec, and adds which call of a model asked for it.
	Executed(x *audit.Exec)
	// End shuts the way out and records the end of each flow.
	End()
}

// Parts is what a sandbox is put together from. The sandbox owns none of it
// but the VM it starts.
type Parts struct {
	Driver   vmm.Driver
	Image    vmm.Image
	Scratch  *os.File
	Network  Network // nil: the card's cable leads nowhere
	Secrets  Secrets // nil: no step may name any
	Recorder Recorder
	Redactor *redact.Redactor
	// Notice tells the caller's user something, a line without a prefix. It may be called at any time.
	Notice func(string)
	// Progress is the same for how far something is that takes long; nil: no one wants to know.
	Progress func(string)
}

// Settings bound a sandbox.
type Settings struct {
	Run         string
	CPUs        int
	Memory      int64 // bytes
	ScratchSize int64 // bytes
	PIDs        int
	Files       channel.FileSettings
	Output      int64 // bytes of output recorded at the most, over all steps
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
// Beside that line it is frozen while any hold stands (see holds).
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
	// turn is held while a step begins and while the run ends, and over a Dump, which so has
	// the sandbox to itself but for the step under way. It guards over.
	turn sync.Mutex
	over bool
}

// ErrVMDied means that the VM ended by itself.
var ErrVMDied = vmm.ErrDied

// wakeTimeout bounds the guest's handshake, which takes some 10 ms.
const wakeTimeout = 30 * time.Second

// Start starts the VM, frozen, and returns immediately; Wake makes the guest usable.
// hold stands from the beginning when the record is stalled already. abort ends
// what the sandbox was started for.
func Start(ctx context.Context, p Parts, s Settings, abort context.CancelCauseFunc) (*Sandbox, error) {
	began := time.Now()
	vm, err := p.Driver.Start(ctx, vmm.Machine{
		ID: s.Run, Image: p.Image, CPUs: s.CPUs, Memory: s.Memory, Scratch: p.Scratch, Tap: p.Network.Tap(),
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

// Wake lets the guest run and gives it its clock, randomness and identity.
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
	s.guest, err = channel.Connect(limited, s.vm.Channel(), wake, s.sighted)
	if err != nil {
		return s.diagnose(fmt.Errorf("wake the guest: %w", err))
	}
	s.watch.Go(func() {
		if err := s.observed.run(context.WithoutCancel(ctx), s.sighted); err != nil {
			s.abort(err) // what cannot be recorded must not happen
		}
	})
	return nil
}

// wake returns what the guest gets as it wakes: its clock, randomness, identity and bounds.
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

// hostname is the run's id as a host name: a label has 63 characters at the most.
func hostname(run string) string { return run[:min(len(run), 63)] }

// Hold freezes the VM for a reason, until Release is called with the same one.
// When the VM cannot be frozen it is destroyed: what cannot be recorded must not happen.
func (s *Sandbox) Hold(ctx context.Context, reason string) { s.holds.add(ctx, reason) }

// Release takes a reason away; the VM goes on when it was the last.
func (s *Sandbox) Release(ctx context.Context, reason string) error {
	return s.holds.release(ctx, reason)
}

// Close ends the VM and writes what its end means into the record: an exit for
// each process that had none, and the VM's destruction.
func (s *Sandbox) Close(ctx context.Context) error {
	began := time.Now()
	s.turn.Lock()
	s.over = true
	s.turn.Unlock()
	close(s.closing)
	var errs []error
	if s.guest != nil {
		// The session's end is of no interest: the VM is destroyed in any case.
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

// diagnose adds what is known of the VM's end to an error of the channel.
func (s *Sandbox) diagnose(err error) error {
	select {
	case <-s.vm.Done():
		return fmt.Errorf("%w: %w (%w)", ErrVMDied, s.vm.Err(), err)
	case <-time.After(50 * time.Millisecond): // the process's end may be noticed a little later than the channel's
		return err
	}
}

func (s *Sandbox) post(ctx context.Context, v audit.VM) error {
	_, err := s.parts.Recorder.Post(ctx, audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindVM, VM: &v})
	return err
}
