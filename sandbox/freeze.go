package sandbox

import (
	"context"
	"errors"
	"fmt"
)

// ErrEnded is wrapped by what Abort ends a run with.
var ErrEnded = errors.New("ended by the project's policy")

// Abort ends the run: its step is asked to end, then killed.
func (s *Sandbox) Abort(reason string) { s.abort(fmt.Errorf("%w: %s", ErrEnded, reason)) }

// The reasons for which someone, and not the record, has the VM frozen.
const (
	pauseHold   = "paused"
	anomalyHold = "a credential turned up where it does not belong"
)

// Pause freezes the VM until Resume. The step's credentials are revoked first, and
// removed from its tmpfs: no one knows how long it will take. They do not come back.
func (s *Sandbox) Pause(ctx context.Context) error {
	s.turn.Lock() // no step begins meanwhile
	defer s.turn.Unlock()
	if err := s.credentials.disarm(ctx, "the sandbox was paused"); err != nil {
		return err
	}
	s.drain(ctx)
	return s.holds.pause(ctx, pauseHold)
}

// Quarantine freezes the VM until Resume, because of an anomaly whose credentials
// have been revoked.
func (s *Sandbox) Quarantine(ctx context.Context) error {
	s.credentials.clear(ctx)
	return s.holds.pause(ctx, anomalyHold)
}

// Resume lets a paused or quarantined VM go on, unless something else holds it.
func (s *Sandbox) Resume(ctx context.Context) error {
	if !s.holds.has(pauseHold) && !s.holds.has(anomalyHold) {
		return errors.New("the sandbox is not paused")
	}
	return errors.Join(s.holds.release(ctx, pauseHold), s.holds.release(ctx, anomalyHold))
}
