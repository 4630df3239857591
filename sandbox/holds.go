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

// startHold stands on a restored VM, which begins frozen.
const startHold = "start"

// freezeTimeout bounds the freezing of a VM; one that does not freeze is destroyed.
const freezeTimeout = 5 * time.Second

// holds are the reasons for which a VM is frozen. It runs only while there is none.
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

	mu      sync.Mutex // guards what follows, and is held over a freeze or thaw
	reasons []string
	since   time.Time
	told    bool // the freeze is in the record
	gone    bool
	free    chan struct{} // closed while nothing holds the VM
}

// newHolds returns the holds of a VM that was just started. startHold stands on
// a frozen one.
func newHolds(vm vmm.VM, frozen bool, r Recorder, notice func(string)) *holds {
	h := &holds{vm: vm, recorder: r, notice: notice, free: make(chan struct{})}
	if frozen {
		h.reasons = []string{startHold}
	} else {
		close(h.free)
	}
	return h
}

// add freezes the VM, if nothing holds it yet. The freeze is recorded when it
// ends: its reason may be that nothing can be.
func (h *holds) add(ctx context.Context, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.freeze(ctx, reason)
}

// pause is add for a reason that the record does not depend on: the freeze is
// recorded as it begins, if it is the first.
func (h *holds) pause(ctx context.Context, reason string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.freeze(ctx, reason)
	if h.gone {
		return errors.New("the vm could not be frozen and was destroyed")
	}
	if h.told || len(h.reasons) > 1 {
		return nil
	}
	h.told = true
	return h.record(ctx, "freeze", reason, h.since, 0)
}

// wait returns when nothing holds the VM, with an error when it is gone or ctx ends.
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

// frozen reports whether anything holds the VM, and has whether a reason does.
func (h *holds) frozen() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.reasons) > 0
}

func (h *holds) has(reason string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.reasons, reason)
}

// freeze runs with mu held.
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

// release takes a reason away. The freeze and its end are written down before
// the VM goes on.
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
	if reason != startHold {
		now := time.Now().UTC()
		var err error
		if !h.told {
			err = h.record(ctx, "freeze", reason, h.since, 0)
		}
		if err := errors.Join(err, h.record(ctx, "thaw", reason, now, now.Sub(h.since))); err != nil {
			return err
		}
		h.told = false
	}
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

// watchDisk holds the VM while the host has no room for its scratch disk. QEMU
// has stopped it by itself; letting it go on repeats the write. It returns when closing is closed.
func (h *holds) watchDisk(closing <-chan struct{}) {
	const reason = "the scratch disk cannot be written"
	for {
		select {
		case why := <-h.vm.Stalls():
			h.add(context.Background(), reason)
			h.notice(fmt.Sprintf("%s (%s): the sandbox is frozen until it can", reason, why))
			select {
			case <-time.After(time.Second):
			case <-closing:
				return
			}
			if err := h.release(context.Background(), reason); err != nil {
				h.notice("thaw: " + err.Error())
			}
		case <-closing:
			return
		case <-h.vm.Done():
			return
		}
	}
}
