package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/internal/heartbeat"
)

// ErrSilent means that the guest gave no sign of life, and that its VM was destroyed for that.
var ErrSilent = errors.New("the guest gives no sign of life")

// beat observes whether the guest of a sandbox lives.
type beat struct{ sandbox *Sandbox }

// run asks the guest for signs of life until the sandbox is closed or dead. It does not count time in which the VM is frozen.
func (b beat) run(ctx context.Context) {
	s := b.sandbox
	watched, cancel := context.WithCancel(ctx)
	s.watch.Go(func() {
		defer cancel()
		select {
		case <-s.closing:
		case <-s.warm.dead:
		}
	})
	heartbeat.Watch{
		Ask: func(ctx context.Context) error {
			cpu, err := s.warm.guest().Ping(ctx)
			if err == nil {
				s.activity.note(cpu, time.Now())
			}
			return err
		},
		Excused: func() bool { return s.holds.frozen() || s.suspended.Load() },
		Silent:  func() { b.silent(ctx) },
	}.Run(watched, s.settings.Silence)
}

// silent records that the guest gives no sign of life, and ends the run and the VM.
func (b beat) silent(ctx context.Context) {
	s := b.sandbox
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
