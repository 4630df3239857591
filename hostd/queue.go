package hostd

import (
	"context"
	"fmt"
	"sync"

	"github.com/custody-project/custody/worker"
)

// Queue bounds how many sandboxes runs have at the same time. Further callers wait until one has ended, in the order of their arrival.
// It is safe for concurrent use. The callers are bounded by who calls: a Server has a bound for its connections.
type Queue struct {
	sandboxes Opener
	places    chan struct{} // one element for each sandbox
}

var _ Opener = (*Queue)(nil)

// NewQueue returns sandboxes of o, at most max at the same time.
func NewQueue(o Opener, max int) *Queue {
	return &Queue{sandboxes: o, places: make(chan struct{}, max)}
}

// Open implements Opener.
func (q *Queue) Open(ctx context.Context, s Spec, e Events) (worker.Sandbox, Details, error) {
	select {
	case q.places <- struct{}{}:
	default:
		e.Notice(fmt.Sprintf("this host has %d sandboxes, the most that it allows: the run waits for the end of one", cap(q.places)))
		select {
		case q.places <- struct{}{}:
		case <-ctx.Done():
			return nil, Details{}, context.Cause(ctx)
		}
	}
	sandbox, details, err := q.sandboxes.Open(ctx, s, e)
	if err != nil {
		<-q.places
		return nil, details, err
	}
	return &placed{Sandbox: sandbox, leave: sync.OnceFunc(func() { <-q.places })}, details, nil
}

// Reopen implements Opener. What is left of a sandbox has no machine, and needs no place.
func (q *Queue) Reopen(ctx context.Context, run string) (worker.Sandbox, error) {
	return q.sandboxes.Reopen(ctx, run)
}

// placed is a sandbox with a place of the Queue.
type placed struct {
	worker.Sandbox
	leave func()
}

// Close implements worker.Sandbox. The next caller gets the place.
func (p *placed) Close() error {
	defer p.leave()
	return p.Sandbox.Close()
}
