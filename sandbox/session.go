package sandbox

import (
	"context"
	"errors"
)

// Session makes steps run concurrently in one cell of the guest, until it returns. What their commands leave behind then ends.
type Session func(ctx context.Context, s *Sandbox) error

// serve runs a session.
func (s *Sandbox) serve(ctx context.Context, do Session) error {
	err := do(ctx, s)
	if s.suspended.Load() { // nothing was left unreported
		return err
	}
	keep := context.WithoutCancel(ctx)
	if s.warm.guest().Err() != nil || s.holds.frozen() {
		return errors.Join(err, s.unreported(keep, ""))
	}
	limited, cancel := context.WithTimeout(keep, reportGrace)
	defer cancel()
	if ended := s.warm.guest().EndSession(limited); ended != nil {
		s.parts.Notice(ended.Error())
		return errors.Join(err, s.unreported(keep, ""))
	}
	return errors.Join(err, s.observed.endStep(keep, ""))
}
