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
)

// held is a grant in a lease. It is safe for concurrent use.
//
//	         ask, renewed
//	           +-----+
//	           v     |
//	minted --> alive until a moment
//	             |  bury, when the lease is dead
//	             v
//	           revoking, again and again (insist)
//	             |  the broker confirmed it, or it is dead by itself
//	             v
//	           done      the record has it
type held struct {
	issuer   *Issuer
	step     string
	term     term
	grant    Grant
	broker   string
	accessor string        // its digest
	names    []string      // of the secrets
	unsaid   []audit.Event // of its mint, if they could not be recorded then

	mu         sync.Mutex // guards what follows; no other is taken under it
	until      moment     // it is counted on until then
	worst      moment     // it can be alive until then: with a renewal whose answer was lost, say
	lost       error      // the last answer, if it was no renewal
	confirmed  bool       // the broker said that it is dead
	failed     error      // the last answer to the revocation
	unrecorded error      // why its end is not in the record

	done chan struct{} // closed when it is dead and recorded as such, or nothing more is done about it
}

func digest(accessor string) string {
	if accessor == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(accessor))
	return hex.EncodeToString(sum[:])
}

// event is an operation on the whole grant, which has a name if there is only one secret in it.
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

// ask asks the broker for a renewal once, and returns until when the grant can be counted on then.
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

// renewed writes the renewal down, and only then counts on it.
func (h *held) renewed(ctx context.Context, until moment) error {
	err := h.issuer.journal.post(ctx, h.eventUntil(audit.SecretRenew, until, ""))
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost = err; err == nil {
		h.until = until
	}
	return err
}

// bury tries to revoke a grant until the broker confirms it or the grant expires, and records
// which. The revocation does not wait for the record.
func (h *held) bury(o *over) {
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

// insist asks for the revocation again and again, until the broker confirms it or the grant is dead by
// itself. It calls late once if that takes long.
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

// mayLive is how long the grant can be alive still.
func (h *held) mayLive() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.worst.sub(h.issuer.now())
}

// revoke asks once, and reports whether the broker confirmed it.
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
	ev.Secret.Reason = cut(fmt.Sprintf("%s; %s did not confirm the revocation, so it is dead by %s, when it expires: %v",
		o.reason, h.broker, ev.Secret.Expires.Format(time.RFC3339), failed))
	return ev
}

// note records what became of a grant, however long that takes.
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

// fate is nil for a grant that is surely dead and recorded as such.
func (h *held) fate() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := h.worst.sub(h.issuer.now())
	switch {
	case h.confirmed || left <= 0:
		return h.unrecorded
	case h.failed != nil:
		return fmt.Errorf("%s has not confirmed the revocation of step %q's credentials, which die in %s at the latest: %w", h.broker, h.step, left.Round(time.Second), h.failed)
	}
	return fmt.Errorf("%s has not answered the revocation of step %q's credentials yet, which die in %s at the latest", h.broker, h.step, left.Round(time.Second))
}

// stands returns until when the grant is counted on, and the broker's last answer if that was no renewal.
func (h *held) stands() (until moment, lost error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until, h.lost
}

// over reports whether nothing more is done about it.
func (h *held) over() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// listen calls report with what the broker says of the grant's misuse.
func (h *held) listen(report func(what string)) {
	misuse := h.grant.Misuse() // nil never says anything
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

// grants are those of a lease.
type grants []*held

// left is how long all of them are counted on still.
func (all grants) left() time.Duration {
	left := MaxLimit
	for _, h := range all {
		until, _ := h.stands()
		left = min(left, until.sub(h.issuer.now()))
	}
	return left
}

// over reports whether nothing more is done about any of them.
func (all grants) over() bool {
	return !slices.ContainsFunc(all, func(h *held) bool { return !h.over() })
}

// expiry returns why one ran out; nil if no broker is the reason.
func (all grants) expiry() *over {
	for _, h := range all {
		until, lost := h.stands()
		if errors.Is(lost, ErrLost) || lost != nil && until.sub(h.issuer.now()) <= 0 {
			return errExpired(cut(fmt.Sprintf("%s did not renew it: %v", h.broker, lost)))
		}
	}
	return nil
}

// confirmed waits for the revocations. Without an error all are dead and recorded as dead.
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
