package ship

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/custody-project/custody/audit/proof/merkle"
)

// The numbers of questions that are answered concurrently. Others wait in the connection, or are asked again.
const (
	answersAtOnce = 8
	deepAtOnce    = 1 // reads all records of a run
)

// answer starts to answer questions about the store. The returned function stops it.
func (g *Ingester) answer(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	questions := make(chan *nats.Msg, 64*answersAtOnce) // when full, further questions are dropped and asked again
	sub, err := g.conn.ChanQueueSubscribe(askRoot+"*", "custody", questions)
	if err != nil {
		cancel()
		return nil, err
	}
	deep := make(chan struct{}, deepAtOnce)
	var workers sync.WaitGroup
	for range answersAtOnce {
		workers.Go(func() {
			for {
				select {
				case m := <-questions:
					g.answerOne(ctx, m, deep)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return func() {
		_ = sub.Unsubscribe()
		cancel()
		workers.Wait()
	}, nil
}

func (g *Ingester) answerOne(ctx context.Context, m *nats.Msg, deep chan struct{}) {
	if m.Reply == "" {
		return
	}
	w := &answering{conn: g.conn, to: m.Reply}
	stop := w.beat(ctx)
	err := g.look(ctx, m, deep, w)
	stop()
	if ctx.Err() == nil {
		w.end(err)
		g.count(func(s *Stats) { s.Questions++ })
	}
}

func (g *Ingester) look(ctx context.Context, m *nats.Msg, deep chan struct{}, w *answering) error {
	tenant, err := names(askRoot, m.Subject, 1)
	if err != nil {
		return err
	}
	var q question
	d := json.NewDecoder(bytes.NewReader(m.Data))
	d.DisallowUnknownFields()
	if len(m.Data) > maxQuestion {
		return fmt.Errorf("a question of %d bytes", len(m.Data))
	}
	if err := d.Decode(&q); err != nil {
		return fmt.Errorf("the question cannot be read: %w", err)
	}
	if _, ok := token(q.Run); !ok || q.Run == "" {
		return fmt.Errorf("no run can be called %.40q", q.Run)
	}
	if q.Deep {
		select {
		case deep <- struct{}{}:
			defer func() { <-deep }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return held(ctx, g.store, tenant[0], q.Run, q.From, q.Deep, w.add)
}

// answering sends the messages of one answer.
type answering struct {
	conn *nats.Conn
	to   string

	mu   sync.Mutex // guards the fields below
	next answer
}

func (w *answering) add(h Held) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next.Held = append(w.next.Held, heldJSON{Index: h.Index, First: h.First, Last: h.Last, Count: h.Count,
		Root: merkle.Hash(h.Root), Manifest: merkle.Hash(h.Manifest)})
	if len(w.next.Held) < heldPerAnswer {
		return nil
	}
	return w.send()
}

// send sends the collected segments as the next message. The caller holds mu.
func (w *answering) send() error {
	body, err := json.Marshal(w.next)
	if err == nil {
		err = w.conn.Publish(w.to, body)
	}
	w.next = answer{N: w.next.N + 1}
	return err
}

func (w *answering) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next.End = true
	if err != nil {
		w.next.Held, w.next.Error = nil, fmt.Sprintf("%.500s", err)
	}
	_ = w.send() // a client that does not receive it asks again
}

// beat sends a message each beatEvery, to signal that the question is being answered.
func (w *answering) beat(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var beating sync.WaitGroup
	beating.Go(func() {
		for pause(ctx, beatEvery); ctx.Err() == nil; pause(ctx, beatEvery) {
			w.mu.Lock()
			_ = w.send()
			w.mu.Unlock()
		}
	})
	return func() { cancel(); beating.Wait() }
}
