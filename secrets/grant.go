package secrets

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
)

const (
	// proofTime is how long one proof of life is good for asking brokers.
	proofTime = 10 * time.Second
	// renewTry is how long the answer to a renewal may take; that to a revocation may take
	// revokeTry, then twice as long, at most longestTry.
	renewTry   = 5 * time.Second
	revokeTry  = 1500 * time.Millisecond
	longestTry = 4 * time.Second
	// patience is how long a revocation is tried before it is recorded as not confirmed.
	patience = 3 * time.Second
	// longestPause is between two tries. With longestTry it is less than settleTime, in which a
	// broker that works again is asked again.
	longestPause = 500 * time.Millisecond
	// slack is how much later than TTL a broker may set a grant's expiry, for the latency of the request.
	slack = 2 * time.Second
)

// held is a grant in a lease.
type held struct {
	grant    Grant
	broker   string
	accessor string        // its digest
	names    []string      // of the secrets
	unsaid   []audit.Event // of its mint, if they could not be recorded then

	// The lease's lock guards what follows.
	until      moment // it is counted on until then
	worst      moment // it can be alive until then: with a renewal whose answer was lost, say
	lost       error  // the last answer, if it was no renewal
	confirmed  bool   // the broker said that it is dead
	failed     error  // the last answer to the revocation
	unrecorded error  // why its end is not in the record

	done chan struct{} // closed when it is dead and recorded as such, or nothing more is done about it
}

func digest(accessor string) string {
	if accessor == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(accessor))
	return hex.EncodeToString(sum[:])
}

// short refuses what lives longer than it should.
func (l *Lease) short(expires time.Time) error {
	most := min(TTL, l.limit.sub(l.issuer.now()))
	if left := time.Until(expires); left > most+slack {
		return fmt.Errorf("the broker gave credentials for %s, which may live for %s", left.Round(time.Second), most.Round(time.Second))
	}
	return nil
}

// reach is until when a grant can be counted on that was asked for at asked: TTL runs from
// then, since the answer took its time.
func (l *Lease) reach(asked moment, expires time.Time) moment {
	return earlier(asked.add(min(TTL, expires.Sub(asked.awake))), l.limit)
}

// doubt is until when a grant can be alive about which the broker was asked until now.
func (l *Lease) doubt() moment {
	return earlier(l.issuer.now().add(TTL), l.limit.add(slack))
}

// left is how long all grants are alive still; l.mu is held.
func (l *Lease) left() time.Duration {
	left := MaxLimit
	for _, h := range l.grants {
		left = min(left, h.until.sub(l.issuer.now()))
	}
	return left
}

// event is an operation on the whole grant, which has a name if there is only one secret in it.
func (l *Lease) event(op audit.SecretOp, h *held, reason string) audit.Event {
	l.mu.Lock()
	until := h.until
	l.mu.Unlock()
	return l.eventUntil(op, h, until, reason)
}

func (l *Lease) eventUntil(op audit.SecretOp, h *held, until moment, reason string) audit.Event {
	s := &audit.Secret{Op: op, Broker: h.broker, Accessor: h.accessor, Leases: h.grant.Leases(), Reason: reason}
	if len(h.names) == 1 {
		s.Name = h.names[0]
	}
	left := max(until.sub(l.issuer.now()), 0)
	switch op {
	case audit.SecretMint, audit.SecretDeliver, audit.SecretRenew:
		s.TTLNS, s.Expires = int64(left), time.Now().Add(left).UTC()
	case audit.SecretExpire:
		s.Expires = time.Now().Add(left).UTC()
	}
	return audit.Event{Time: time.Now(), Kind: audit.KindSecret, Step: l.step, Secret: s}
}

// watch ends the lease when a grant was not renewed in time. It looks every second, since
// no timer goes on while the host sleeps.
func (l *Lease) watch() {
	for {
		l.mu.Lock()
		left := l.left()
		l.mu.Unlock()
		if left <= 0 {
			l.kill(l.expiry())
			return
		}
		if wait(l.life.Done(), min(left, time.Second)) {
			return
		}
	}
}

// expiry returns why a grant ran out.
func (l *Lease) expiry() *over {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit.sub(l.issuer.now()) <= 0 {
		return errExpired("the step's limit is reached")
	}
	for _, h := range l.grants {
		if errors.Is(h.lost, ErrLost) || h.lost != nil && h.until.sub(l.issuer.now()) <= 0 {
			return errExpired(cut(fmt.Sprintf("%s did not renew it: %v", h.broker, h.lost)))
		}
	}
	return errExpired("the step did not prove that it lives")
}

// Renew makes all grants live for TTL again. It is called right after a proof of life, tries
// for some seconds at most, and may then be called again with a fresh proof. A lease that no call renews in
// time is over, as is one that its broker has lost. What could not be recorded does not count.
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

// renew asks for one grant until the broker agrees or ctx ends.
func (l *Lease) renew(ctx context.Context, h *held) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, longestPause) {
		until, err := l.ask(ctx, h)
		if err == nil {
			return l.renewed(ctx, h, until)
		}
		l.mu.Lock()
		h.lost = err
		l.mu.Unlock()
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

// ask asks the broker once.
func (l *Lease) ask(ctx context.Context, h *held) (moment, error) {
	ctx, cancel := context.WithTimeout(ctx, renewTry)
	defer cancel()
	asked := l.issuer.now()
	err := h.grant.Renew(ctx)
	l.mu.Lock()
	h.worst = l.doubt()
	l.mu.Unlock()
	if err != nil {
		return moment{}, err
	}
	expires := h.grant.Expires()
	return l.reach(asked, expires), l.short(expires)
}

// renewed writes the renewal down, and only then counts on it.
func (l *Lease) renewed(ctx context.Context, h *held, until moment) error {
	if err := l.alive(); err != nil {
		return err
	}
	err := l.issuer.post(ctx, l.eventUntil(audit.SecretRenew, h, until, ""))
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.lost = err; err == nil {
		h.until = until
	}
	return err
}

// bury revokes a grant until the broker confirms it, or it is dead by itself, and writes
// down which. The revocation does not wait for the record.
func (l *Lease) bury(h *held, o *over) {
	notes := make(chan audit.Event, 2) // an expire and a revoke event
	go func() {
		defer close(h.done)
		for _, ev := range h.unsaid {
			l.note(h, ev)
		}
		for ev := range notes {
			l.note(h, ev)
		}
	}()
	defer close(notes)
	if o.why == expired {
		notes <- l.event(audit.SecretExpire, h, o.reason)
	}
	if !l.insist(h, func() {
		if o.why != expired {
			notes <- l.unconfirmed(h, o)
		}
	}) {
		return
	}
	notes <- l.event(audit.SecretRevoke, h, o.reason)
}

// insist asks for the revocation again and again, until the broker confirms it or the grant is dead by
// itself. It calls late once if that takes long.
func (l *Lease) insist(h *held, late func()) (confirmed bool) {
	ctx, since := l.issuer.ctx, l.issuer.now()
	late = sync.OnceFunc(late)
	pause, try := 50*time.Millisecond, revokeTry
	for ; !l.revoke(ctx, h, try); pause, try = min(2*pause, longestPause), min(2*try, longestTry) {
		now := l.issuer.now()
		tired := now.sub(since) >= patience
		if tired || ctx.Err() != nil {
			late()
		}
		if ctx.Err() != nil || tired && l.mayLive(h) <= 0 {
			return false
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return true
}

// mayLive is how long the grant can be alive still.
func (l *Lease) mayLive(h *held) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return h.worst.sub(l.issuer.now())
}

// revoke asks once, and reports whether the broker confirmed it.
func (l *Lease) revoke(ctx context.Context, h *held, try time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, try)
	defer cancel()
	err := h.grant.Revoke(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	h.confirmed, h.failed = err == nil, err
	return h.confirmed
}

func (l *Lease) unconfirmed(h *held, o *over) audit.Event {
	l.mu.Lock()
	failed, worst := h.failed, h.worst
	l.mu.Unlock()
	ev := l.eventUntil(audit.SecretExpire, h, worst, "")
	ev.Secret.Reason = cut(fmt.Sprintf("%s; %s did not confirm the revocation, so it is dead by %s, when it expires: %v",
		o.reason, h.broker, ev.Secret.Expires.Format(time.RFC3339), failed))
	return ev
}

// note records what became of a grant, however long that takes.
func (l *Lease) note(h *held, ev audit.Event) {
	ctx := l.issuer.ctx
	for {
		err := l.issuer.record(ctx, ev)
		l.mu.Lock()
		h.unrecorded = err
		l.mu.Unlock()
		if err == nil || errors.Is(err, audit.ErrWithheld) || errors.Is(err, audit.ErrInvalid) {
			return
		}
		select {
		case <-time.After(longestPause):
		case <-ctx.Done():
			return
		}
	}
}

// listen reports what the broker says of a grant's misuse.
func (l *Lease) listen(h *held) {
	misuse := h.grant.Misuse() // nil never says anything
	for {
		select {
		case what, ok := <-misuse:
			if !ok {
				return
			}
			l.issuer.misused(l, h, what)
		case <-h.done:
			return
		}
	}
}
