package export

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Retry configures the delay before a Send is retried: First, doubled up to Max, each
// time with some jitter. A longer delay that the receiver requests is honored, up to an hour.
type Retry struct{ First, Max time.Duration }

// longestAfter bounds the delay that the receiver can request.
const longestAfter = time.Hour

// grace is how long a Send may continue when the exporter is stopped.
const grace = 2 * time.Second

// courier passes batches to a sink until each event is accepted or permanently refused:
//
//	batch --Send--> accepted ---------------------------------> done
//	   ^              | later, timeout, reset, invalid answer
//	   |<--- wait ----'
//	   |              | refused, several events: halves, in turn
//	   |<-------------'
//	                  | refused, one event
//	                  '--> bury; but if everything is refused: halted, wait, retry
type courier struct {
	sink       Sink
	timeout    time.Duration // of one Send
	retry      Retry
	maxRefused int // in a row, before it halts
	bury       func(ctx context.Context, i Item, reason string) error
	told       *tally
	refused    int // in a row
}

// deliver returns nil when all events are done, and otherwise an error when ctx is done.
func (c *courier) deliver(ctx context.Context, items []Item) error {
	wait := &backoff.ExponentialBackOff{InitialInterval: c.retry.First, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: c.retry.Max}
	wait.Reset()
	work := [][]Item{items}
	for repeat := false; len(work) > 0; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		batch := work[0]
		if len(batch) == 0 {
			work = work[1:]
			continue
		}
		if repeat {
			c.told.retried()
		}
		err := c.send(ctx, batch)
		if ctx.Err() != nil && err != nil {
			return context.Cause(ctx)
		}
		if refusal(err) != nil && len(batch) > 1 {
			half := len(batch) / 2
			work = append([][]Item{batch[:half], batch[half:]}, work[1:]...)
			repeat = true
			continue
		}
		left, err := c.settle(ctx, batch, err)
		if len(left) == 0 {
			work, repeat = work[1:], false
			wait.Reset()
			continue
		}
		work[0], repeat = left, true
		if len(left) < len(batch) {
			wait.Reset()
		}
		c.told.failed(err)
		if err := sleep(ctx, max(wait.NextBackOff(), after(err))); err != nil {
			return err
		}
	}
	return nil
}

// send calls Send with a timeout. When ctx is done it gets a moment to complete, so that
// the outcome of accepted events is known.
func (c *courier) send(ctx context.Context, batch []Item) error {
	sending, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), c.timeout, fmt.Errorf("no answer within %v", c.timeout))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })()
	err := c.sink.Send(sending, batch)
	var each Outcomes
	if errors.As(err, &each) && len(each) != len(batch) {
		return fmt.Errorf("the sink gave %d outcomes for %d events", len(each), len(batch))
	}
	if err != nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", context.Cause(sending), err)
	}
	return err
}

// settle buries refused events, counts accepted ones, and returns those to be retried and the error.
func (c *courier) settle(ctx context.Context, batch []Item, err error) (left []Item, why error) {
	if err == nil {
		c.taken(len(batch))
		return nil, nil
	}
	var each Outcomes
	if !errors.As(err, &each) {
		if refusal(err) == nil {
			return batch, err
		}
		each = Outcomes{err} // batch is one event
	}
	ok := 0
	for i, err := range each {
		if err == nil {
			ok++
			continue
		}
		if r := refusal(err); r != nil {
			if err = c.give(ctx, batch[i], r, ok); err == nil {
				continue
			}
		}
		left = append(left, batch[i])
		why = longest(why, err)
	}
	if ok > 0 {
		c.taken(ok)
	}
	return left, why
}

// give buries one event, unless too many events in a row were refused.
func (c *courier) give(ctx context.Context, i Item, r *Refused, taken int) error {
	if taken > 0 {
		c.refused = 0
	}
	if c.refused++; c.refused > c.maxRefused {
		c.told.halted(true)
		return fmt.Errorf("halted: the last %d events were all refused, which indicates a wrong configuration: %s", c.maxRefused, r.Reason)
	}
	if err := c.bury(ctx, i, r.Reason); err != nil {
		return fmt.Errorf("write dead letter: %w", err)
	}
	return nil
}

func (c *courier) taken(n int) {
	c.refused = 0
	c.told.taken(n)
}

// longest returns the error with the longer delay, the first of equals.
func longest(a, b error) error {
	if a == nil || after(b) > after(a) {
		return b
	}
	return a
}

// after returns the delay that the receiver requested.
func after(err error) time.Duration {
	var l *Later
	if errors.As(err, &l) {
		return min(l.After, longestAfter)
	}
	return 0
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
