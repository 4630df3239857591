package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/vmm"
)

// Machine describes the machine of a sandbox, which belongs to no run. The caller closes its files.
type Machine struct {
	ID          string // for messages
	Driver      vmm.Driver
	Image       vmm.Image
	Scratch     *os.File
	Tap         *os.File // see vmm.Machine
	CPUs        int
	Memory      int64 // bytes
	ScratchSize int64 // bytes
	DiskRate    int64 // bytes per second of each disk; 0: no limit
	NetworkRate int64 // bytes per second in each direction; 0: no limit
	// Notice, if set, is called with the reason why the guest's wake is delayed.
	Notice func(string)
}

// Warm is a sandbox without an identity: its VM runs and its guest is awake, but it belongs to no run, and nothing is recorded. Its
// clock, randomness and host name are those of the template's snapshot until Identify.
//
//	   Start              Assign
//	-----------> waiting ---------> assigned: that Sandbox's
//	              ^   |  \
//	              +---+   \ Close; or the VM died, Done is closed
//	             Rehearse  -----------------------------------------> gone
type Warm struct {
	machine  Machine
	vm       vmm.VM
	client   atomic.Pointer[channel.Client] // nil until the guest is awake; replaced when the guest was suspended
	observer vmm.Observer                   // nil: the guest has a sensor
	sandbox  atomic.Pointer[Sandbox]
	watch    sync.WaitGroup // observes the VM and waits for its end

	began     time.Time
	took      time.Duration // to start the VM
	rehearsed bool

	dead chan struct{} // closed when the sandbox cannot be used any more
	once sync.Once     // closes dead
	err  error         // why; set before dead is closed
}

// wakeTimeout bounds the guest's handshake, which takes some 10 ms. Time in which the host's disk is full does not count.
const wakeTimeout = 30 * time.Second

// Start starts the VM of a sandbox and wakes its guest.
func Start(ctx context.Context, m Machine) (*Warm, error) {
	w := &Warm{machine: m, began: time.Now().UTC(), dead: make(chan struct{})}
	var err error
	w.vm, err = m.Driver.Start(ctx, vmm.Machine{
		ID: m.ID, Image: m.Image, CPUs: m.CPUs, Memory: m.Memory, Scratch: m.Scratch, Tap: m.Tap, DiskRate: m.DiskRate, NetworkRate: m.NetworkRate,
	})
	if err != nil {
		return nil, err
	}
	w.took = time.Since(w.began)
	w.observer, _ = w.vm.(vmm.Observer)
	if err := w.wake(ctx); err != nil {
		return nil, errors.Join(err, w.Close(context.WithoutCancel(ctx)))
	}
	return w, nil
}

// wake lets the guest run and connects to it.
func (w *Warm) wake(ctx context.Context) error {
	if w.machine.Image.State == nil {
		if err := channel.AwaitReady(ctx, w.vm.Channel()); err != nil {
			return w.diagnose(fmt.Errorf("boot the guest: %w", err))
		}
	} else if err := w.vm.Thaw(ctx); err != nil {
		return err
	}
	limited, end := w.limitWake(ctx)
	defer end()
	if err := w.connect(limited); err != nil {
		return err
	}
	keep := context.WithoutCancel(ctx)
	if w.observer != nil {
		w.watch.Go(func() { w.fail(w.observer.Observe(keep, w.observe)) })
	}
	return nil
}

// guest returns the guest of a machine that is awake.
func (w *Warm) guest() *channel.Client { return w.client.Load() }

// connect wakes the guest.
func (w *Warm) connect(ctx context.Context) error {
	guest, err := channel.Connect(ctx, w.vm.Channel(), channel.Wake{Scratch: w.machine.ScratchSize}, w.observe)
	if err != nil {
		return w.diagnose(fmt.Errorf("wake the guest: %w", err))
	}
	w.client.Store(guest)
	w.watch.Go(func() { w.await(guest) })
	return nil
}

// limitWake returns a context that is done after wakeTimeout, and lets the machine run again when it has stopped over a full disk. The caller
// calls end.
func (w *Warm) limitWake(ctx context.Context) (limited context.Context, end func()) {
	limited, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(wakeTimeout, func() { cancel(context.DeadlineExceeded) })
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case why := <-w.vm.Stalls():
				late.Stop()
				if w.machine.Notice != nil {
					w.machine.Notice(stalled(why))
				}
				select {
				case <-time.After(stallPause):
				case <-limited.Done():
					return
				}
				late.Reset(wakeTimeout)
				if err := w.vm.Thaw(limited); err != nil {
					cancel(err)
					return
				}
			case <-limited.Done():
				return
			}
		}
	})
	return limited, func() {
		cancel(nil)
		watch.Wait()
		late.Stop()
	}
}

// observe takes an event. Before the sandbox belongs to a run nothing may be observed: such an event makes it unusable.
func (w *Warm) observe(ctx context.Context, ev *audit.Event) error {
	if sb := w.sandbox.Load(); sb != nil {
		return sb.observe(ctx, ev)
	}
	return fmt.Errorf("an event of kind %s before the sandbox belongs to a run", ev.Kind)
}

// await waits for the end of the VM or of a session of the guest.
func (w *Warm) await(guest *channel.Client) {
	select {
	case <-w.vm.Done():
		w.die(errors.Join(ErrVMDied, w.vm.Err()))
	case <-guest.Done():
		if err := guest.Err(); !errors.Is(err, channel.ErrSuspended) {
			w.die(err)
		}
	}
}

// fail ends the sandbox because it is not observed any more: the workload must not continue. err is nil at the VM's end.
func (w *Warm) fail(err error) {
	if err == nil {
		return
	}
	err = fmt.Errorf("observe the sandbox: %w", err)
	w.die(err)
	if sb := w.sandbox.Load(); sb != nil {
		sb.abort(err)
	}
}

func (w *Warm) die(err error) {
	w.once.Do(func() {
		w.err = err
		close(w.dead)
	})
}

// Rehearse runs a trivial command in the guest as steps run. This reads from the template what every step
// needs, and makes the emulator translate it. Nothing is left of the command. More commands, a shell or a lease cost an emulated VM
// up to 15 MB for translated code, and make the first step hardly faster.
func (w *Warm) Rehearse(ctx context.Context) error {
	if err := w.guest().Rehearse(ctx, channel.Command{Step: "rehearsal", Argv: []string{"true"}}); err != nil {
		return w.diagnose(err)
	}
	if err := w.guest().Drain(ctx); err != nil {
		return w.diagnose(err)
	}
	w.rehearsed = true
	return nil
}

// Check returns an error if the sandbox cannot be used: it has died, or its guest does not answer.
func (w *Warm) Check(ctx context.Context) error {
	select {
	case <-w.dead:
		return w.err
	default:
	}
	if _, err := w.guest().Ping(ctx); err != nil {
		return w.diagnose(err)
	}
	return nil
}

// Done is closed when the VM has ended, or the guest's session has.
func (w *Warm) Done() <-chan struct{} { return w.dead }

// Close destroys the VM. It can be called again.
func (w *Warm) Close(ctx context.Context) error {
	if guest := w.guest(); guest != nil {
		guest.Close() // an error is ignored: the VM is destroyed in any case
	}
	err := w.vm.Destroy(ctx)
	w.watch.Wait()
	return err
}

// started describes the VM for the record of its run.
func (w *Warm) started() audit.VM {
	v := audit.VM{Op: "restore", Driver: w.machine.Driver.Name(), Tier: w.machine.Driver.Tier(), DurationNS: int64(w.took)}
	if w.machine.Image.State == nil {
		v.Op = "boot"
	}
	if w.rehearsed {
		v.Reason = "before the run, at " + w.began.Format(time.RFC3339) + ", for the pool"
	}
	return v
}

// diagnose adds the reason of the VM's end, if it has ended, to an error of the channel.
func (w *Warm) diagnose(err error) error {
	if errors.Is(err, ErrSuspended) { // its VM lives
		return err
	}
	select {
	case <-w.vm.Done():
		select {
		case <-w.dead:
			if errors.Is(w.err, ErrSilent) {
				return w.err
			}
		default:
		}
		return fmt.Errorf("%w: %w (%w)", ErrVMDied, w.vm.Err(), err)
	case <-time.After(diedWithin):
		return err
	}
}

// diedWithin is how much later than the end of its channel the end of a VM can be noticed: on a busy host the kernel takes
// that long to free its memory. A VM whose channel alone has ended is rare.
const diedWithin = 3 * time.Second
