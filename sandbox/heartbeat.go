package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
)

// ErrSilent means that the guest gave no sign of life, and that its VM was destroyed for that.
var ErrSilent = errors.New("the guest gives no sign of life")

// beats is how many beats in a row may pass without an answer of the guest. The last one ends the sandbox. Beats are counted in place of time:
// while this process itself does not run, on a host that was suspended or has no processor time, none is counted.
const beats = 6

// heartbeat observes whether the guest of a sandbox lives. Beats do not count while the VM is frozen.
//
//	            answer, or frozen
//	         +---------------------+
//	         v                     |
//	asks --> waits, 0 missed --> 1 ... beats missed --> silent: recorded, the VM is destroyed
type heartbeat struct{ sandbox *Sandbox }

// run asks the guest for a sign of life at each beat, until the sandbox is closed or dead.
func (h heartbeat) run(ctx context.Context) {
	s := h.sandbox
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	beat := time.NewTicker(s.settings.Silence / beats)
	defer beat.Stop()
	answered := make(chan struct{}, 1) // at most one question is open
	ask := func() {
		asking.Go(func() {
			if cpu, err := s.guest.Ping(ctx); err == nil {
				s.activity.note(cpu, time.Now())
				answered <- struct{}{}
			}
		})
	}
	ask()
	for missed, open := 0, true; ; {
		select {
		case <-answered:
			missed, open = 0, false
		case <-beat.C:
			switch {
			case s.holds.frozen():
				missed = 0
			case !open:
				open = true
				ask()
			default:
				missed++
			}
			if missed == beats {
				h.silent(ctx)
				return
			}
		case <-s.closing:
			return
		case <-s.warm.dead:
			return
		}
	}
}

// silent records that the guest gives no sign of life, and ends the run and the VM.
func (h heartbeat) silent(ctx context.Context) {
	s := h.sandbox
	limit := s.settings.Silence
	err := fmt.Errorf("%w: none in %s of running (limits.silence); its VM was destroyed", ErrSilent, limit)
	if failed := s.post(ctx, audit.VM{Op: "silent", Reason: "the guest gives no sign of life", DurationNS: int64(limit)}); failed != nil {
		err = errors.Join(err, failed)
	}
	s.warm.die(err)
	s.abort(err)
	if err := s.vm.Destroy(ctx); err != nil {
		s.parts.Notice("destroy: " + err.Error())
	}
}
