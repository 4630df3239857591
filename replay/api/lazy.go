package api

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/custody-project/custody/store"
)

// errAway means that the store does not answer. It wraps the error of the store.
var errAway = errors.New("the store is away")

// openAgain is how long after a failure the store is opened again.
const openAgain = time.Second

// lazySource is a Source that is opened at the first call, and again after a failure.
//
//	closed -- a call --> open -- an error of the store's --> closed, when the last call has ended
//	   `-- Open fails: all calls fail for openAgain
type lazySource struct {
	open func(context.Context) (Source, error)
	ctx  context.Context // of the Server: the store outlives a request

	mu     sync.Mutex // guards the fields below; held while the store is opened
	now    *shared
	failed error
	when   time.Time
	closed bool
}

// shared is an open Source with the number of its users.
type shared struct {
	Source
	users int
	old   bool // to be closed by its last user
}

// use returns the Source, and a function to call with the outcome of the call.
func (l *lazySource) use() (Source, func(error), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, errors.Join(errAway, errors.New("the server ends"))
	}
	if l.now == nil {
		if l.failed != nil && time.Since(l.when) < openAgain {
			return nil, nil, l.failed
		}
		src, err := l.open(l.ctx)
		if err != nil {
			l.failed, l.when = errors.Join(errAway, err), time.Now()
			return nil, nil, l.failed
		}
		l.now, l.failed = &shared{Source: src}, nil
	}
	s := l.now
	s.users++
	return s, func(err error) { l.done(s, err) }, nil
}

func (l *lazySource) done(s *shared, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.users--
	if err != nil && errors.Is(err, errAway) {
		s.old = true
		if l.now == s {
			l.now = nil
		}
	}
	if s.old && s.users == 0 {
		_ = s.Source.Close() // it does not work, or the server ends
	}
}

// Close closes the store when its last user is done.
func (l *lazySource) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	s := l.now
	l.now = nil
	if s == nil {
		return nil
	}
	s.old = true
	if s.users > 0 {
		return nil
	}
	return s.Source.Close()
}

// away wraps an error of a store in errAway, unless it is about the request
// or the client has gone.
func away(ctx context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrAmbiguous), errors.Is(err, store.ErrNoRecord), ctx.Err() != nil:
		return err
	}
	return errors.Join(errAway, err)
}

// Runs implements Source.
func (l *lazySource) Runs(ctx context.Context, f store.Filter) ([]store.Run, error) {
	s, done, err := l.use()
	if err != nil {
		return nil, err
	}
	runs, err := s.Runs(ctx, f)
	err = away(ctx, err)
	done(err)
	return runs, err
}

// Run implements Source.
func (l *lazySource) Run(ctx context.Context, tenant, name string) (store.Run, error) {
	s, done, err := l.use()
	if err != nil {
		return store.Run{}, err
	}
	run, err := s.Run(ctx, tenant, name)
	err = away(ctx, err)
	done(err)
	return run, err
}

// Records implements Source.
func (l *lazySource) Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error] {
	return l.rows(ctx, func(s Source) iter.Seq2[store.Row, error] { return s.Records(ctx, q) })
}

// Search implements Source.
func (l *lazySource) Search(ctx context.Context, q store.Search) iter.Seq2[store.Row, error] {
	return l.rows(ctx, func(s Source) iter.Seq2[store.Row, error] { return s.Search(ctx, q) })
}

func (l *lazySource) rows(ctx context.Context, of func(Source) iter.Seq2[store.Row, error]) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		s, done, err := l.use()
		if err != nil {
			yield(store.Row{}, err)
			return
		}
		var failed error
		defer func() { done(failed) }()
		for row, err := range of(s) {
			failed = away(ctx, err)
			if !yield(row, failed) || err != nil {
				return
			}
		}
	}
}
