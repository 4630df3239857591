package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/custody-project/custody/export"
)

// outage is the number of consecutive failures that end a pass: the receiver fails for every message.
const outage = 3

// selection selects the waiting messages of a pass.
type selection int

const (
	isNew  selection = iota // never tried
	isDue                   // also those whose next attempt is due
	isKept                  // all
)

// result is the result of a pass.
type result struct {
	err       error         // the first failure
	next      time.Duration // until the next attempt is due; 0: nothing waits
	delivered bool          // at least one message
	early     bool          // the receiver fails, or the queue cannot be read: the rest waits for the next pass
	isNew     bool          // a new message, not a retry, ended it early
}

// item is a waiting message: a file of the queue, or one that could not be stored on disk.
type item struct {
	id, name string
	m        Message // if name is ""
}

// pass sends the selected messages in turn: first new ones in order of time, then failed
// ones in the order in which they are due. One that fails again waits for its next attempt, and the pass continues.
func (d *deliverer) pass(ctx context.Context, t *target, which selection) (r result) {
	unlock, err := d.queue.lock(ctx)
	if err == nil {
		defer unlock()
	}
	locked := err == nil
	if n := t.dropped.Swap(0); n > 0 {
		if err := d.queue.note(func(s *State) { s.Dropped += n }); err != nil {
			t.dropped.Add(n)
		}
	}
	items, listErr := d.items(locked)
	if r.err = errors.Join(err, listErr); r.err != nil {
		r.early = true // another process delivers the stored messages, or the lock fails
	}
	failed := 0
	for _, it := range items {
		due, again := d.due[it.id]
		if again && which == isNew || again && which == isDue && time.Now().Before(due) {
			continue
		}
		err := d.send(ctx, it)
		if err == nil {
			failed, r.delivered = 0, true
			continue
		}
		r.err = cmp.Or(r.err, err)
		var answered *export.Later
		if failed++; failed == outage || !errors.As(err, &answered) || ctx.Err() != nil {
			r.early, r.isNew = true, !again
			break
		}
	}
	if left, err := d.items(locked); err == nil && len(left) > 0 {
		r.next = d.until(left)
	}
	return r
}

// items lists the waiting messages, in the order of a pass, and drops entries of others from due.
func (d *deliverer) items(disk bool) ([]item, error) {
	var all []item
	for _, m := range d.memory {
		all = append(all, item{id: m.ID, m: m})
	}
	var names []string
	var err error
	if disk {
		names, err = d.queue.names()
	}
	for _, name := range names {
		all = append(all, item{id: idOf(name), name: name})
	}
	known := map[string]time.Time{}
	s, _ := d.queue.state() // if it cannot be read, all are retried
	for _, it := range all {
		due, ok := d.due[it.id]
		if !ok {
			due, ok = s.Retries[it.id]
		}
		if ok {
			known[it.id] = due
		}
	}
	d.due = known
	slices.SortStableFunc(all, func(a, b item) int { return d.due[a.id].Compare(d.due[b.id]) })
	return all, err
}

// until returns the time until the first of them is due, more than 0.
func (d *deliverer) until(items []item) time.Duration {
	first := slices.MinFunc(items, func(a, b item) int { return d.due[a.id].Compare(d.due[b.id]) })
	return min(max(time.Until(d.due[first.id]), time.Millisecond), 2*longestWait) // the clock may have been wrong
}

// send makes one attempt. A file that is not a message is set aside and counted, so that it blocks no other.
func (d *deliverer) send(ctx context.Context, it item) error {
	if it.name == "" {
		return d.one(ctx, entry{m: it.m})
	}
	e, err := d.queue.read(it.name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil // an erasure removed it
	case errors.Is(err, errNoMessage):
		d.warn(fmt.Sprintf("notify webhook %s: %v", d.webhook.Name, err))
		return d.settle(err, 1)
	case err != nil:
		d.due[it.id] = time.Now().Add(longestWait)
		return errors.Join(&export.Later{Err: err}, d.settle(err, 0))
	}
	return d.one(ctx, e)
}
