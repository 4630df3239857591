package secrets

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// proofTime is how long a proof of life is valid for renewals.
const proofTime = 10 * time.Second

// watch ends the lease when a grant was not renewed in time. It checks every second, because timers stop while the host
// sleeps.
func (l *Lease) watch() {
	for {
		left := l.held().left()
		if left <= 0 {
			l.kill(l.expiry())
			return
		}
		if wait(l.life.Done(), min(left, time.Second)) {
			return
		}
	}
}

// expiry returns why a grant has expired.
func (l *Lease) expiry() *over {
	if l.term.left() <= 0 {
		return errExpired("the step's limit is reached")
	}
	if o := l.held().expiry(); o != nil {
		return o
	}
	return errExpired("the guest did not prove that the step still runs")
}

// Renew extends all grants to TTL from now. It is called right after a proof of life, takes some seconds at most, and
// may then be called again with a new proof. A lease that is not renewed in time ends, as does one whose grant the
// broker has lost. Renewals that could not be recorded do not count.
func (l *Lease) Renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, proofTime)
	defer cancel()
	select {
	case l.renewing <- struct{}{}:
		defer func() { <-l.renewing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := l.alive(); err != nil {
		return err
	}
	ctx, stop := l.within(ctx)
	defer stop()
	errs := make([]error, len(l.held()))
	var all sync.WaitGroup
	for at, h := range l.held() {
		all.Go(func() { errs[at] = l.renew(ctx, h) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// renew renews one grant, with retries until the broker confirms it or ctx ends.
func (l *Lease) renew(ctx context.Context, h *held) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, longestPause) {
		until, err := h.ask(ctx)
		if err == nil {
			if err := l.alive(); err != nil {
				return err
			}
			return h.renewed(ctx, until)
		}
		if errors.Is(err, ErrLost) {
			l.kill(l.expiry())
			return l.alive()
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if err := l.alive(); err != nil {
				return err
			}
			return fmt.Errorf("%s did not renew the credentials of step %q: %w", h.broker, l.step, err)
		}
	}
}
