package template

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Time limits. On a host that is itself an emulated VM, a boot takes minutes.
const (
	bootTimeout = 15 * time.Minute
	saveTimeout = 10 * time.Minute
	lockTimeout = time.Hour
)

// phaseNotice is the interval of a phase's progress messages.
const phaseNotice = 15 * time.Second

// phase runs do with a time limit; do must return soon after its context ends. phase writes progress messages
// to the store's log, and names the phase in the error if the limit is exceeded.
func (s Store) phase(ctx context.Context, what string, limit time.Duration, do func(context.Context) error) error {
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- do(within) }()
	tick := time.NewTicker(phaseNotice)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err != nil && ctx.Err() == nil && errors.Is(within.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("%s: not done after %v: %w", what, limit, err)
			}
			return err
		case <-tick.C:
			fmt.Fprintf(s.Log, "%s: %v so far, at most %v\n", what, time.Since(began).Round(time.Second), limit)
		}
	}
}
