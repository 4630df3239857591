package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/custody-project/custody/audit"
)

// observe takes the events of a driver that observes the sandbox from the host. The workload
// ends if they cannot be recorded.
func (s *Sandbox) observe(ctx context.Context) {
	if s.observer == nil {
		return
	}
	s.watch.Go(func() {
		if err := s.observer.Observe(ctx, s.sighted); err != nil {
			s.abort(fmt.Errorf("observe the sandbox: %w", err))
		}
	})
}

// observeTimeout bounds how long a driver may take to report what happened in a step that has ended.
const observeTimeout = time.Minute

func (s *Sandbox) beginObserved(ctx context.Context, step string) error {
	if s.observer == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	return s.observer.BeginStep(ctx, step)
}

// endObserved returns when all events of the step are in the record, or when the record declares that some are missing.
func (s *Sandbox) endObserved(ctx context.Context) error {
	if s.observer == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	err := s.observer.EndStep(limited)
	if err == nil {
		return nil
	}
	_, recorded := s.parts.Recorder.Post(ctx, audit.Event{
		Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindGap,
		Gap: &audit.Gap{Stage: audit.StageGuest, Cause: "the driver did not report everything: " + err.Error()},
	})
	return recorded
}
