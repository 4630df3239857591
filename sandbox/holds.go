package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/vmm"
)

// freezeTimeout bounds the freezing of a VM. A VM that does not freeze in time is destroyed.
const freezeTimeout = 5 * time.Second

// holds are the reasons why a VM is frozen. The VM runs only while there are none.
//
//	           add (first)
//	running ---------------> frozen ----+ add, release (not the last)
//	   ^                      |   ^     |
//	   +----------------------+   +-----+
//	        release (last)
type holds struct {
	vm       vmm.VM
	recorder Recorder
	notice   func(string)

	mu       sync.Mutex // guards the fields below; held during a freeze or thaw
	reasons  []string
	since    time.Time
	recorded bool          // whether the freeze has been recorded
	gone     bool          // the VM could not be frozen and was destroyed
	free     chan struct{} // closed while nothing holds the VM
}

// newHolds returns the holds of a VM that runs: none.
func newHolds(vm vmm.VM, r Recorder, notice func(string)) *holds {
	h := &holds{vm: vm, recorder: r, notice: notice, free: make(chan struct{})}
	close(h.free)
	return h
}

// add adds a reason, and freezes the VM if it is the first. The freeze is recorded when it
// ends, because the reason may be that the record cannot be written.
func (h *holds) add(ctx context.Context, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.freeze(ctx, reason)
}

// pause is like add, for reasons other than the record: if the reason is the first, the freeze is
// recorded immediately.
func (h *holds) pause(ctx context.Context, reason string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.freeze(ctx, reason)
	if h.gone {
		return errors.New("the vm could not be frozen and was destroyed")
	}
	if h.recorded || len(h.reasons) > 1 {
		return nil
	}
	h.recorded = true
	return h.record(ctx, "freeze", reason, h.since, 0)
}

// wait returns when there is no hold. It returns an error if the VM has ended or ctx is done.
func (h *holds) wait(ctx context.Context) error {
	h.mu.Lock()
	free := h.free
	h.mu.Unlock()
	select {
	case <-free:
		return nil
	case <-h.vm.Done():
		return ErrVMDied
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// frozen reports whether there is any hold.
func (h *holds) frozen() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.reasons) > 0
}

// has reports whether there is a hold for this reason.
func (h *holds) has(reason string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.reasons, reason)
}

// freeze adds a reason, and freezes the VM if it is the first. The caller holds mu.
func (h *holds) freeze(ctx context.Context, reason string) {
	if h.gone || slices.Contains(h.reasons, reason) {
		return
	}
	h.reasons = append(h.reasons, reason)
	if len(h.reasons) > 1 {
		return
	}
	h.since = time.Now().UTC()
	h.free = make(chan struct{})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), freezeTimeout)
	defer cancel()
	if err := h.vm.Freeze(ctx); err != nil {
		h.gone = true
		h.notice(fmt.Sprintf("the vm could not be frozen (%v) and was destroyed", err))
		if err := h.vm.Destroy(ctx); err != nil {
			h.notice("destroy: " + err.Error())
		}
	}
}

// release removes a reason. If it was the last, release records the freeze and its end, and then
// lets the VM run.
func (h *holds) release(ctx context.Context, reason string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.Index(h.reasons, reason)
	if i < 0 || h.gone {
		return nil
	}
	if len(h.reasons) > 1 {
		h.reasons = slices.Delete(h.reasons, i, i+1)
		return nil
	}
	now := time.Now().UTC()
	var err error
	if !h.recorded {
		err = h.record(ctx, "freeze", reason, h.since, 0)
	}
	if err := errors.Join(err, h.record(ctx, "thaw", reason, now, now.Sub(h.since))); err != nil {
		return err
	}
	h.recorded = false
	h.reasons = h.reasons[:0]
	close(h.free)
	return h.vm.Thaw(ctx)
}

func (h *holds) record(ctx context.Context, op, reason string, at time.Time, d time.Duration) error {
	_, err := h.recorder.Post(ctx, audit.Event{
		Time: at, Observer: audit.Host, Kind: audit.KindVM, VM: &audit.VM{Op: op, Reason: reason, DurationNS: int64(d)},
	})
	return err
}

const (
	diskHold   = "the scratch disk cannot be written"
	stallPause = time.Second // between a stall and the next attempt
)

// stalled is the notice of a stall, see vmm.VM.
func stalled(why string) string {
	return fmt.Sprintf("%s (%s): the sandbox is frozen until it can", diskHold, why)
}

// watchDisk holds the VM while the host has no room for its scratch disk. QEMU
// has stopped it by itself; letting it go on repeats the write. It returns when closing is closed.
func (h *holds) watchDisk(closing <-chan struct{}) {
	for {
		select {
		case why := <-h.vm.Stalls():
			h.add(context.Background(), diskHold)
			h.notice(stalled(why))
			select {
			case <-time.After(stallPause):
			case <-closing:
				return
			}
			if err := h.release(context.Background(), diskHold); err != nil {
				h.notice("thaw: " + err.Error())
			}
		case <-closing:
			return
		case <-h.vm.Done():
			return
		}
	}
}
