package sandbox

import (
	"context"
	"errors"
	"fmt"
)

// ErrEnded means that Abort ended the run.
var ErrEnded = errors.New("ended by the project's policy")

// Abort ends the run: the current step gets SIGTERM, then SIGKILL.
func (s *Sandbox) Abort(reason string) { s.abort(fmt.Errorf("%w: %s", ErrEnded, reason)) }

// The reasons for which a user or an anomaly freezes the VM.
const (
	pauseHold   = "paused"
	anomalyHold = "a credential turned up where it does not belong"
)

// Pause freezes the VM until Resume. It first revokes the step's credentials and removes them
// from its tmpfs, because the pause can take any time. Resume does not restore them.
func (s *Sandbox) Pause(ctx context.Context) error {
	s.turn.Lock() // no step begins meanwhile
	defer s.turn.Unlock()
	if err := s.credentials.disarm(ctx, "the sandbox was paused"); err != nil {
		return err
	}
	s.drain(ctx)
	return s.holds.pause(ctx, pauseHold)
}

// Quarantine freezes the VM until Resume, because of an anomaly. The caller has revoked the
// credentials; Quarantine removes them from the guest.
func (s *Sandbox) Quarantine(ctx context.Context) error {
	s.credentials.clear(ctx)
	return s.holds.pause(ctx, anomalyHold)
}

// Resume lets a paused or quarantined VM run again, unless another hold remains.
func (s *Sandbox) Resume(ctx context.Context) error {
	if !s.holds.has(pauseHold) && !s.holds.has(anomalyHold) {
		return errors.New("the sandbox is not paused")
	}
	return errors.Join(s.holds.release(ctx, pauseHold), s.holds.release(ctx, anomalyHold))
}
