// Package heartbeat observes whether something answers.
package heartbeat

import (
	"context"
	"sync"
	"time"
)

// beats is how many beats in a row may pass without an answer. The last one is the limit. Beats are counted in place of time: while this
// process itself does not run, on a host that was suspended or has no processor time, at most one is counted.
const beats = 6

// Watch asks for an answer at each beat.
//
//	             answer, or excused
//	          +---------------------+
//	          v                     |
//	asks --> waits, 0 missed --> 1 ... beats missed --> silent
type Watch struct {
	Ask     func(context.Context) error // returns nil when the answer has come; one call runs at a time
	Excused func() bool                 // whether a beat does not count; nil: each does
	Silent  func()                      // called when beats in a row have passed without an answer, at most once
	Limits  <-chan time.Duration        // replace the limit; nil: it stays
}

// Run asks until ctx is done or Silent was called. limit is the time of all beats. It returns when Ask has returned.
func (w Watch) Run(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	beat := time.NewTicker(limit / beats)
	defer beat.Stop()
	answered := make(chan struct{}, 1) // at most one question is open
	ask := func() {
		asking.Go(func() {
			if w.Ask(ctx) == nil {
				answered <- struct{}{}
			}
		})
	}
	ask()
	for missed, open := 0, true; ; {
		select {
		case <-answered:
			missed, open = 0, false
		case limit = <-w.Limits:
			missed = 0
			beat.Reset(limit / beats)
		case <-beat.C:
			switch {
			case w.Excused != nil && w.Excused():
				missed = 0
			case !open:
				open = true
				ask()
			default:
				missed++
			}
			if missed == beats {
				w.Silent()
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
