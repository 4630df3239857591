package notify

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/export"
	"github.com/custody-project/custody/audit/export/peer"
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

// deliverer brings the messages of one webhook out of its queue.
type deliverer struct {
	webhook Webhook
	queue   queue
	warn    func(string)
	memory  []Message // that the disk did not take
	failing bool      // the last attempt
}

// work stores what comes, and delivers until the buffer is closed and the queue is empty, or ctx ends.
func (d *deliverer) work(ctx, _ context.Context, t *target) {
	wait := &backoff.ExponentialBackOff{InitialInterval: firstWait, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: longestWait}
	wait.Reset()
	due := time.NewTimer(0)
	defer due.Stop()
	for open := true; ; {
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
				continue // its time comes
			}
		case <-due.C:
		case <-ctx.Done():
			d.drain(t)
			return
		}
		err := d.deliver(ctx, t)
		if err == nil {
			wait.Reset()
			d.failing = false
			if !open {
				return
			}
			due.Stop()
			continue
		}
		if !d.failing {
			d.warn(fmt.Sprintf("notify webhook %s: %v; it is tried again", d.webhook.Name, err))
			d.failing = true
		}
		due.Reset(max(wait.NextBackOff(), after(err)))
	}
}

// drain stores what is still in the buffer when the time is over.
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

// keep makes a message durable, or keeps it in memory where the disk cannot take it.
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

// deliver sends what waits, oldest first, and returns the first failure.
func (d *deliverer) deliver(ctx context.Context, t *target) error {
	unlock, err := d.queue.lock(ctx)
	if err == nil {
		defer unlock()
	}
	if n := t.dropped.Swap(0); n > 0 {
		if err := d.queue.note(func(s *State) { s.Dropped += n }); err != nil {
			t.dropped.Add(n)
		}
	}
	for len(d.memory) > 0 {
		if err := d.one(ctx, entry{m: d.memory[0]}); err != nil {
			return err
		}
		d.memory = d.memory[1:]
	}
	if err != nil {
		return err // another process delivers what is on the disk
	}
	names, err := d.queue.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		e, err := d.queue.read(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // another process has delivered it
		}
		if err == nil {
			err = d.one(ctx, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// one sends a message and forgets it, unless it has to be tried again.
func (d *deliverer) one(ctx context.Context, e entry) error {
	_, err := d.webhook.post(ctx, e.m, time.Now())
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
	}
	noteErr := d.queue.settle(err, map[bool]uint64{true: 1}[drop])
	if drop {
		d.warn(fmt.Sprintf("notify webhook %s: message %s dropped: %v", d.webhook.Name, e.m.ID, err))
		return nil
	}
	if err == nil && noteErr != nil && e.path != "" {
		return noteErr
	}
	return err
}

// post is one attempt. No error has the address, which may be a secret.
func (w Webhook) post(ctx context.Context, m Message, now time.Time) (peer.Answer, error) {
	address, err := w.address()
	if err != nil {
		return peer.Answer{}, err
	}
	key, err := w.secret()
	if err != nil {
		return peer.Answer{}, err
	}
	config, err := peer.TLS{CA: w.CA}.Config()
	if err != nil {
		return peer.Answer{}, err
	}
	h := peer.NewHTTP(config)
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
	return answer, answer.Outcome()
}

func after(err error) time.Duration {
	var l *export.Later
	if errors.As(err, &l) {
		return min(l.After, longestWait)
	}
	return 0
}

// lock is held while messages are sent, so that no two processes send the same one. The kernel
// releases it with the process.
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

// settle notes how an attempt ended.
func (q queue) settle(err error, dropped uint64) error {
	if err := os.MkdirAll(q.dir, 0o700); err != nil {
		return err
	}
	return q.note(func(s *State) {
		s.Dropped += dropped
		if err == nil {
			s.good()
			return
		}
		s.bad(err)
	})
}
