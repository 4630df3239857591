package upstream

import (
	"context"
	"sync"
)

// flights makes concurrent callers with the same question share one lookup. It starts no goroutine: the first caller
// does the lookup, and the others wait for it.
type flights struct {
	mu   sync.Mutex // guards open
	open map[question]*flight
}

type flight struct {
	done   chan struct{} // closed when answer and err are set
	answer Answer
	err    error
}

// do calls ask, unless a call for q is in progress, for whose result it then waits. If that call fails because its
// caller's context ended, do calls ask itself.
func (f *flights) do(ctx context.Context, q question, ask func() (Answer, error)) (Answer, error) {
	for {
		mine, other := f.join(q)
		if other == nil {
			mine.answer, mine.err = ask()
			f.leave(q, mine)
			return mine.answer, mine.err
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		}
		if other.err == nil || !gone(other.err) {
			return other.answer, other.err
		}
	}
}

func (f *flights) join(q question) (mine, other *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if other = f.open[q]; other != nil {
		return nil, other
	}
	mine = &flight{done: make(chan struct{})}
	f.open[q] = mine
	return mine, nil
}

func (f *flights) leave(q question, mine *flight) {
	f.mu.Lock()
	delete(f.open, q)
	f.mu.Unlock()
	close(mine.done)
}
