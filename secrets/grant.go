package secrets

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
)

const (
	// renewTry is the timeout of a renewal; that of a revocation is revokeTry, doubled with each try up to longestTry.
	renewTry   = 5 * time.Second
	revokeTry  = 1500 * time.Millisecond
	longestTry = 4 * time.Second
	// patience is how long a revocation is tried before it is recorded as not confirmed.
	patience = 3 * time.Second
	// longestPause is the longest pause between tries. Together with longestTry it is less than settleTime, so that a
	// broker that has recovered is tried again in time.
	longestPause = 500 * time.Millisecond
)

// held is a grant of a lease. It is safe for concurrent use.
//
//	         ask, renewed
//	           +-----+
//	           v     |
//	minted --> alive until a moment
//	   |    revokeUntilDead, when the lease is dead
//	   v
//	revoking, repeatedly (insist)
//	   |    the broker has confirmed it, or it has expired
//	   v
//	done         the end is recorded
type held struct {
	issuer   *Issuer
	step     string
	term     term
	grant    Grant
	broker   string
	accessor string        // digest of the accessor
	names    []string      // of the secrets
	unsaid   []audit.Event // mint events that could not be recorded at first

	mu         sync.Mutex // guards the fields below; no other lock is taken under it
	until      moment     // valid at least until then
	worst      moment     // may be alive until then, for instance after a renewal whose response was lost
	lost       error      // the broker's last response, if it was not a renewal
	confirmed  bool       // the broker has confirmed the revocation
	failed     error      // the last response to the revocation
	unrecorded error      // why its end is not recorded

	done chan struct{} // closed when its end is recorded, or no further attempt is made
}

func digest(accessor string) string {
	if accessor == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(accessor))
	return hex.EncodeToString(sum[:])
}

// event returns an event about the whole grant. It has a name if the grant has only one secret.
func (h *held) event(op audit.SecretOp, reason string) audit.Event {
	h.mu.Lock()
	until := h.until
	h.mu.Unlock()
	return h.eventUntil(op, until, reason)
}

func (h *held) eventUntil(op audit.SecretOp, until moment, reason string) audit.Event {
	s := &audit.Secret{Op: op, Broker: h.broker, Accessor: h.accessor, Leases: h.grant.Leases(), Reason: reason}
	if len(h.names) == 1 {
		s.Name = h.names[0]
	}
	left := max(until.sub(h.issuer.now()), 0)
	switch op {
	case audit.SecretMint, audit.SecretDeliver, audit.SecretRenew:
		s.TTLNS, s.Expires = int64(left), time.Now().Add(left).UTC()
	case audit.SecretExpire:
		s.Expires = time.Now().Add(left).UTC()
	}
	return audit.Event{Time: time.Now(), Kind: audit.KindSecret, Step: h.step, Secret: s}
}

// ask sends one renewal to the broker, and returns until when the grant is valid then.
func (h *held) ask(ctx context.Context) (until moment, err error) {
	ctx, cancel := context.WithTimeout(ctx, renewTry)
	defer cancel()
	asked := h.issuer.now()
	err = h.grant.Renew(ctx)
	worst := h.term.doubt()
	if err == nil {
		expires := h.grant.Expires()
		until, err = h.term.reach(asked, expires), h.term.short(expires)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.worst = worst
	if err != nil {
		h.lost = err
	}
	return until, err
}

// renewed records the renewal, and only then extends the validity.
func (h *held) renewed(ctx context.Context, until moment) error {
	err := h.issuer.journal.post(ctx, h.eventUntil(audit.SecretRenew, until, ""))
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost = err; err == nil {
		h.until = until
	}
	return err
}

// revokeUntilDead tries to revoke a grant until the broker confirms it or the grant expires, and records the result. The
// revocation does not wait for the record.
func (h *held) revokeUntilDead(o *over) {
	notes := make(chan audit.Event, 2) // an expire and a revoke event
	go func() {
		defer close(h.done)
		for _, ev := range h.unsaid {
			h.note(ev)
		}
		for ev := range notes {
			h.note(ev)
		}
	}()
	defer close(notes)
	if o.why == expired {
		notes <- h.event(audit.SecretExpire, o.reason)
	}
	if !h.insist(func() {
		if o.why != expired {
			notes <- h.unconfirmed(o)
		}
	}) {
		return
	}
	notes <- h.event(audit.SecretRevoke, o.reason)
}

// insist repeats the revocation until the broker confirms it or the grant has expired. It calls late once if that takes
// long.
func (h *held) insist(late func()) (confirmed bool) {
	ctx, since := h.issuer.ctx, h.issuer.now()
	late = sync.OnceFunc(late)
	pause, try := 50*time.Millisecond, revokeTry
	for ; !h.revoke(ctx, try); pause, try = min(2*pause, longestPause), min(2*try, longestTry) {
		now := h.issuer.now()
		tired := now.sub(since) >= patience
		if tired || ctx.Err() != nil {
			late()
		}
		if ctx.Err() != nil || tired && h.mayLive() <= 0 {
			return false
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return true
}

// mayLive returns how long the grant may still be alive.
func (h *held) mayLive() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.worst.sub(h.issuer.now())
}

// revoke makes one attempt, and reports whether the broker confirmed it.
func (h *held) revoke(ctx context.Context, try time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, try)
	defer cancel()
	err := h.grant.Revoke(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.confirmed, h.failed = err == nil, err
	return h.confirmed
}

func (h *held) unconfirmed(o *over) audit.Event {
	h.mu.Lock()
	failed, worst := h.failed, h.worst
	h.mu.Unlock()
	ev := h.eventUntil(audit.SecretExpire, worst, "")
	ev.Secret.Reason = cut(fmt.Sprintf("%s; %s did not confirm the revocation, so it may be alive until it expires at %s: %v",
		o.reason, h.broker, ev.Secret.Expires.Format(time.RFC3339), failed))
	return ev
}

// note records the end of a grant, however long that takes.
func (h *held) note(ev audit.Event) {
	ctx := h.issuer.ctx
	for {
		err := h.issuer.journal.record(ctx, ev)
		h.mu.Lock()
		h.unrecorded = err
		h.mu.Unlock()
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

// fate returns nil if the grant is revoked and that is recorded, and otherwise the reason why it may be alive.
func (h *held) fate() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := h.worst.sub(h.issuer.now())
	switch {
	case h.confirmed || left <= 0:
		return h.unrecorded
	case h.failed != nil:
		return fmt.Errorf("%s has not confirmed the revocation of step %q's credentials, which expire in %s at the latest: %w", h.broker, h.step, left.Round(time.Second), h.failed)
	}
	return fmt.Errorf("%s has not answered the revocation of step %q's credentials yet, which expire in %s at the latest", h.broker, h.step, left.Round(time.Second))
}

// validity returns until when the grant is valid, and the broker's last response if it was not a renewal.
func (h *held) validity() (until moment, lost error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until, h.lost
}

// over reports whether no further attempt is made.
func (h *held) over() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// listen calls report for each misuse of the grant that the broker reports.
func (h *held) listen(report func(what string)) {
	misuse := h.grant.Misuse() // a nil channel never receives
	for {
		select {
		case what, ok := <-misuse:
			if !ok {
				return
			}
			report(what)
		case <-h.done:
			return
		}
	}
}

// grants are the grants of a lease.
type grants []*held

// left returns how long all of them are still valid.
func (all grants) left() time.Duration {
	left := MaxLimit
	for _, h := range all {
		until, _ := h.validity()
		left = min(left, until.sub(h.issuer.now()))
	}
	return left
}

// over reports whether no further attempt is made for any of them.
func (all grants) over() bool {
	return !slices.ContainsFunc(all, func(h *held) bool { return !h.over() })
}

// expiry returns why one has expired; nil if no broker is the reason.
func (all grants) expiry() *over {
	for _, h := range all {
		until, lost := h.validity()
		if errors.Is(lost, ErrLost) || lost != nil && until.sub(h.issuer.now()) <= 0 {
			return errExpired(cut(fmt.Sprintf("%s did not renew it: %v", h.broker, lost)))
		}
	}
	return nil
}

// confirmed waits for the revocations. Without an error all grants are revoked, and that is recorded.
func (all grants) confirmed(ctx context.Context) error {
	var errs []error
	for _, h := range all {
		select {
		case <-h.done:
		case <-ctx.Done():
		}
		errs = append(errs, h.fate())
	}
	return errors.Join(errs...)
}
