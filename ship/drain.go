package ship

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/custody-project/custody/store"
)

// notice is a message of an ingester to a host: which messages are committed, and which are refused permanently.
type notice struct {
	Stored  []string  `json:"stored,omitempty"`
	Refused []refusal `json:"refused,omitempty"`
}

type refusal struct {
	ID       string `json:"id"`
	Why      string `json:"why"`
	Conflict bool   `json:"conflict,omitempty"` // store.ErrConflict, else store.ErrMalformed
}

// The host asks about segments that may not be stored after firstAsk, and then less often.
const (
	firstAsk = 100 * time.Millisecond
	lastAsk  = 2 * time.Second
)

// listen receives notices. They are an optimization: Drain asks about the others.
func (r *Remote) listen() error {
	subject, err := subject(storedRoot, r.config.Tenant, r.config.Host)
	if err != nil {
		return err
	}
	_, err = r.conn.Subscribe(subject, func(m *nats.Msg) {
		var n notice
		if json.Unmarshal(m.Data, &n) == nil {
			r.noticed(n)
		}
	})
	return err
}

func (r *Remote) noticed(n notice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range n.Stored {
		r.settle(id)
	}
	for _, f := range n.Refused {
		s, there := r.sent[f.ID]
		if !there {
			continue
		}
		kind := store.ErrMalformed
		if f.Conflict {
			kind = store.ErrConflict
		}
		r.refused.add(fmt.Errorf("segment %d of run %s was refused by the ingester: %w: %.500s", s.held.Index, s.run, kind, f.Why))
		r.counts.Refused++
		delete(r.sent, f.ID)
	}
	r.signal()
}

// settle counts a segment as stored. The caller holds mu.
func (r *Remote) settle(id string) {
	if _, there := r.sent[id]; there {
		r.counts.Stored++
		delete(r.sent, id)
	}
}

// Drain waits until the store has all segments that were published here. Its error joins those of the
// segments that were refused since the last Drain, and of those that have not reached the store when ctx ends.
func (r *Remote) Drain(ctx context.Context) error {
	err := r.drain(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("%d segments have not reached the store: %w", len(r.sent), errors.Join(err, r.failing))
	}
	err = errors.Join(r.refused.err(), err)
	r.refused = refusals{}
	return err
}

func (r *Remote) drain(ctx context.Context) error {
	for delay := firstAsk; ; delay = min(2*delay, lastAsk) {
		if r.unsure() {
			r.setFailing(r.askAll(ctx))
		}
		short, cancel := context.WithTimeout(ctx, delay)
		err := r.wait(short, func() bool { return len(r.sent) == 0 })
		cancel()
		if err == nil || errors.Is(err, ErrClosed) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.suspect()
	}
}

// unsure reports whether the store may have a segment without a notice of it.
func (r *Remote) unsure() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sent {
		if s.duplicate {
			return true
		}
	}
	return false
}

// suspect marks all segments that are not known to be stored: a notice may have been lost.
func (r *Remote) suspect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, s := range r.sent {
		s.duplicate = true
		r.sent[id] = s
	}
}

// askAll asks the store about each run with such segments.
func (r *Remote) askAll(ctx context.Context) error {
	type key struct{ tenant, run string }
	from, deep := map[key]uint64{}, map[key]bool{}
	r.mu.Lock()
	for _, s := range r.sent {
		k := key{s.tenant, s.run}
		if least, there := from[k]; !there || s.held.Index < least {
			from[k] = s.held.Index
		}
		deep[k] = deep[k] || s.repair // the answer must be computed from the rows
	}
	r.mu.Unlock()
	for k, least := range from {
		found, err := r.ask(ctx, k.tenant, question{Run: k.run, From: least, Deep: deep[k]})
		if err != nil {
			return err
		}
		r.settleHeld(k.tenant, k.run, found)
	}
	return nil
}

func (r *Remote) settleHeld(tenant, run string, found []Held) {
	has := map[Held]bool{}
	for _, h := range found {
		has[h.bare()] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, s := range r.sent {
		if s.tenant == tenant && s.run == run && has[s.held.bare()] {
			r.settle(id)
		}
	}
	r.signal()
}

// Stats returns statistics of this Remote.
func (r *Remote) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.counts
	s.Reconnects = r.reconnects.Load()
	s.underway(r.sent)
	if r.failing != nil {
		s.Failing = r.failing.Error()
	}
	return s
}
