package ship

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/custody-project/custody/audit/proof/merkle"
)

// A question is published to custody.v1.ask.<tenant>, and one ingester answers it with messages numbered from 0,
// of which the last is marked. While it works, the ingester sends an empty message each beatEvery.
type question struct {
	Run  string `json:"run"`
	From uint64 `json:"from,omitempty"` // index of the first requested manifest
	Deep bool   `json:"deep,omitempty"`
}

type answer struct {
	N     uint64     `json:"n"`
	Held  []heldJSON `json:"held,omitempty"`
	End   bool       `json:"end,omitempty"`
	Error string     `json:"error,omitempty"`
}

type heldJSON struct {
	Index    uint64      `json:"index"`
	First    uint64      `json:"first"`
	Last     uint64      `json:"last"`
	Count    uint64      `json:"count"`
	Root     merkle.Hash `json:"root"`
	Manifest merkle.Hash `json:"manifest"`
}

const (
	heldPerAnswer = 1000
	maxQuestion   = 4 << 10
	beatEvery     = time.Second
	// silence is how long to wait for the next message of an answer before asking again.
	silence = 5 * time.Second
)

// ErrNoIngester means that no ingester is connected to the servers to answer questions.
var ErrNoIngester = errors.New("no ingester answers questions about the store")

// errBroken is an incomplete answer.
var errBroken = errors.New("the answer broke off")

// Stored returns the segments of a run in the store, in order; none if the store does not have the run.
// A deep answer is computed from the records in the store. Stored retries until ctx ends.
func (r *Remote) Stored(ctx context.Context, tenant, run string, deep bool) ([]Held, error) {
	found, err := r.ask(ctx, tenant, question{Run: run, Deep: deep})
	if err != nil {
		return nil, fmt.Errorf("ask what the store has of run %s: %w", run, err)
	}
	return found, nil
}

func (l *link) ask(ctx context.Context, tenant string, q question) ([]Held, error) {
	subject, err := subject(askRoot, tenant)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	for delay := firstAsk; ; delay = min(2*delay, lastAsk) {
		found, err := l.askOnce(ctx, subject, body)
		var remote *remoteError
		switch {
		case err == nil || final(err) || errors.As(err, &remote):
			return found, err
		case ctx.Err() != nil:
			return nil, errors.Join(err, ctx.Err())
		case l.conn.IsClosed():
			return nil, ErrClosed
		}
		l.probe(err)
		if l.rest(ctx, jitter(delay)); ctx.Err() != nil {
			return nil, errors.Join(err, ctx.Err())
		}
	}
}

// remoteError is an ingester's error about a question.
type remoteError struct{ text string }

func (e *remoteError) Error() string { return "the ingester answers: " + e.text }

func (l *link) askOnce(ctx context.Context, subject string, body []byte) (found []Held, err error) {
	ctx, release := l.guarded(ctx, subject)
	defer release()
	inbox := l.conn.NewInbox()
	sub, err := l.conn.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe()
	if err := l.conn.PublishRequest(subject, inbox, body); err != nil {
		return nil, err
	}
	for n := uint64(0); ; n++ {
		a, err := nextAnswer(ctx, sub)
		switch {
		case err != nil:
			return nil, err
		case a.Error != "":
			return nil, &remoteError{fmt.Sprintf("%.500s", a.Error)}
		case a.N != n:
			return nil, errBroken
		}
		for _, h := range a.Held {
			found = append(found, Held{Index: h.Index, First: h.First, Last: h.Last, Count: h.Count, Root: h.Root, Manifest: h.Manifest})
		}
		if a.End {
			return found, nil
		}
	}
}

func nextAnswer(ctx context.Context, sub *nats.Subscription) (a answer, err error) {
	bounded, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	m, err := sub.NextMsgWithContext(bounded)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return a, ErrNoIngester
	case err != nil && context.Cause(ctx) != nil:
		return a, context.Cause(ctx)
	case err != nil:
		return a, fmt.Errorf("%w: %w", errBroken, err)
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return a, fmt.Errorf("%w: %w", errBroken, err)
	}
	return a, nil
}
