package notify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/sink/peer"
	"github.com/custody-project/custody/internal/endpoint"
	"github.com/custody-project/custody/internal/flock"
	"github.com/custody-project/custody/internal/regular"
)

// Times and sizes of an attempt.
const (
	attemptTime = 10 * time.Second
	firstWait   = time.Second     // after a failure, then longer and longer up to
	longestWait = 5 * time.Minute // each with up to a half of jitter
	answerBytes = 4 << 10
)

// deliverer delivers the messages in the queue of one webhook.
type deliverer struct {
	webhook Webhook
	web     Web
	queue   queue
	warn    func(string)
	memory  []Message            // messages that could not be stored on disk
	due     map[string]time.Time // next attempt of failed messages, by id
	failing bool                 // the last pass
	down    bool                 // a new message's failure ended the last pass: later ones wait too
}

// work stores new messages, and delivers them until the buffer is closed and nothing is due soon, or ctx ends.
func (d *deliverer) work(ctx, _ context.Context, t *target) {
	wait := &backoff.ExponentialBackOff{InitialInterval: firstWait, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: longestWait}
	wait.Reset()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for open := true; ; {
		which := isDue
		select {
		case m, ok := <-t.buffer:
			if ok {
				d.keep(m, t)
				if len(t.buffer) > 0 {
					continue
				}
			} else {
				t.buffer, open = nil, false
			}
			if d.failing && open {
				if d.down {
					continue // until the timer
				}
				which = isNew
			}
		case <-timer.C:
		case <-ctx.Done():
			d.drain(t)
			return
		}
		r := d.pass(ctx, t, which)
		if r.delivered {
			wait.Reset()
		}
		if r.err != nil && !d.failing {
			d.warn(fmt.Sprintf("notify webhook %s: %v; Custody retries it", d.webhook.Name, r.err))
		}
		switch {
		case r.early:
			r.next = max(wait.NextBackOff(), after(r.err))
		case r.next > 0:
			r.next = max(r.next, firstWait)
		}
		d.failing, d.down = r.next > 0, r.early && r.isNew
		if !open && (r.next == 0 || r.next > closeWait) {
			return
		}
		timer.Stop()
		if r.next > 0 {
			timer.Reset(r.next)
		}
	}
}

// drain stores the rest of the buffer when the time is over.
func (d *deliverer) drain(t *target) {
	for t.buffer != nil {
		select {
		case m, ok := <-t.buffer:
			if !ok {
				return
			}
			d.keep(m, t)
		default:
			return
		}
	}
}

// keep stores a message durably, or in memory if the disk fails.
func (d *deliverer) keep(m Message, t *target) {
	_, err := d.queue.add(m)
	switch {
	case err == nil:
	case !errors.Is(err, errFull) && len(d.memory) < buffered:
		d.memory = append(d.memory, m)
	default:
		t.dropped.Add(1)
	}
}

// one sends a message and removes it unless it must be retried.
func (d *deliverer) one(ctx context.Context, e entry) error {
	_, err := d.webhook.post(ctx, d.web, e.m, time.Now())
	if err != nil && ctx.Err() != nil {
		err = errors.New("no answer before the command ended")
	}
	var refused *export.Refused
	drop := errors.As(err, &refused) || err != nil && time.Since(e.m.Time) > maxAge
	if err == nil || drop {
		if e.path != "" {
			if err := os.Remove(e.path); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		d.memory = slices.DeleteFunc(d.memory, func(m Message) bool { return m.ID == e.m.ID })
		delete(d.due, e.m.ID)
	} else {
		d.due[e.m.ID] = time.Now().Add(max(retryAfter(time.Since(e.m.Time)), after(err)))
	}
	noteErr := d.settle(err, map[bool]uint64{true: 1}[drop])
	if drop {
		d.warn(fmt.Sprintf("notify webhook %s: message %s dropped: %v", d.webhook.Name, e.m.ID, err))
		return nil
	}
	if err == nil && noteErr != nil && e.path != "" {
		return noteErr
	}
	return err
}

// retryAfter returns how long a message of this age waits after a failure: its age, so that the waits double.
func retryAfter(age time.Duration) time.Duration {
	wait := min(max(age, firstWait), longestWait)
	return wait + rand.N(wait/2)
}

// post makes one attempt. Its errors never contain the address, which may be a secret.
func (w Webhook) post(ctx context.Context, web Web, m Message, now time.Time) (peer.Answer, error) {
	address, err := w.address()
	if err != nil {
		return peer.Answer{}, err
	}
	key, err := w.secret()
	if err != nil {
		return peer.Answer{}, err
	}
	server := endpoint.Server{}
	if w.CA != "" {
		if server.Authorities, err = regular.ReadFile(w.CA); err != nil {
			return peer.Answer{}, fmt.Errorf("read ca: %w", err)
		}
	}
	carrier, err := web.To(server)
	if err != nil {
		return peer.Answer{}, fmt.Errorf("ca: %s: %w", w.CA, err)
	}
	h := peer.Over(carrier)
	defer h.Close()
	body := m.body(w.Format)
	h.Header.Set("webhook-id", m.ID)
	h.Header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	if key != nil {
		h.Header.Set("webhook-signature", sign(key, m.ID, now, body))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, attemptTime, fmt.Errorf("no answer within %v", attemptTime))
	defer cancel()
	answer, err := h.Post(ctx, address, "application/json", body, false, answerBytes)
	var where *url.Error
	switch {
	case err != nil && ctx.Err() != nil:
		return answer, context.Cause(ctx)
	case errors.As(err, &where):
		return answer, where.Err
	case err != nil:
		return answer, err
	}
	return answer, outcome(answer)
}

// outcome is like peer.Answer, but each status of 4xx is permanent, except 408 and 429, and the target of a redirect is not
// quoted: it can be the secret address with another host.
func outcome(a peer.Answer) error {
	err := a.Outcome()
	if a.Status >= 300 && a.Status <= 399 {
		return &export.Later{After: after(err), Err: fmt.Errorf("HTTP %d: redirects are not followed: name the server that it leads to", a.Status)}
	}
	var refused *export.Refused
	if err == nil || errors.As(err, &refused) || a.Status < 400 || a.Status > 499 ||
		a.Status == http.StatusRequestTimeout || a.Status == http.StatusTooManyRequests {
		return err
	}
	return &export.Refused{Reason: err.Error()}
}

func after(err error) time.Duration {
	var l *export.Later
	if errors.As(err, &l) {
		return min(l.After, longestWait)
	}
	return 0
}

// lock is held while messages are sent, so that no two processes send the same one. The kernel
// releases it when the process ends.
func (q queue) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(q.dir, 0o700); err != nil {
		return nil, err
	}
	f, err := regular.OpenFile(filepath.Join(q.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock.LockWithin(ctx, f, unix.LOCK_EX, 2*attemptTime); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// settle records the result of an attempt.
func (q queue) settle(err error, dropped uint64) error {
	return q.note(func(s *State) { s.settle(err, dropped) })
}

// settle records the result of an attempt, and the next attempt of each failed message.
func (d *deliverer) settle(err error, dropped uint64) error {
	return d.queue.note(func(s *State) {
		s.Retries = maps.Clone(d.due)
		s.settle(err, dropped)
	})
}
