package heartbeat_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/custody-project/custody/internal/heartbeat"
)

const limit = 60 * time.Millisecond

// TestSilent: what does not answer, or fails to, is silent; also after it has answered.
func TestSilent(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]int32{"never": 0, "three times": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked, silent atomic.Int32
			heartbeat.Watch{
				Ask: func(ctx context.Context) error {
					if asked.Add(1) <= answers {
						return nil
					}
					<-ctx.Done()
					return ctx.Err()
				},
				Silent: func() { silent.Add(1) },
			}.Run(t.Context(), limit)
			if silent.Load() != 1 || asked.Load() != answers+1 {
				t.Errorf("silent %d times, asked %d times", silent.Load(), asked.Load())
			}
		})
	}
	silent := false
	heartbeat.Watch{Ask: func(context.Context) error { return errors.New("broken") }, Silent: func() { silent = true }}.Run(t.Context(), limit)
	if !silent {
		t.Error("a failure is an answer")
	}
}

// TestExcused: beats that are excused do not count, and a question that is open then can be answered later.
func TestExcused(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	thaw := make(chan struct{})
	var excused, asked atomic.Int32
	heartbeat.Watch{
		Ask: func(context.Context) error {
			if asked.Add(1) == 1 {
				<-thaw
			} else {
				cancel()
			}
			return nil
		},
		Excused: func() bool {
			n := excused.Add(1)
			if n == 20 {
				close(thaw)
			}
			return n <= 20
		},
		Silent: func() { t.Error("it is silent") },
	}.Run(ctx, time.Second)
	if excused.Load() <= 20 {
		t.Errorf("%d beats", excused.Load())
	}
}

// TestLimits: a new limit replaces the earlier one.
func TestLimits(t *testing.T) {
	t.Parallel()
	limits := make(chan time.Duration, 1)
	limits <- limit
	silent := false
	heartbeat.Watch{
		Ask:    func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		Silent: func() { silent = true },
		Limits: limits,
	}.Run(t.Context(), time.Hour)
	if !silent {
		t.Error("it is not silent")
	}
}
