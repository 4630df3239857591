package access

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// ErrWithdrawn is the cause of the end of a request's context when its credential was
// withdrawn or ran out while the request was being answered.
var ErrWithdrawn = errors.New("the credential is no longer valid")

// live are the requests that are being answered, so that those of a credential that was
// withdrawn can be cut off: streams go on for hours.
type live struct {
	mu sync.Mutex // guards of; a request that is in it has not returned
	of map[*activeRequest]struct{}
}

// activeRequest is a request that is being answered.
type activeRequest struct {
	holds    func() bool
	cancel   context.CancelCauseFunc
	writer   *http.ResponseController
	explains atomic.Bool
}

type activeKey struct{}

// explainFor is how long a handler may take to tell the client why its request ends.
const explainFor = 5 * time.Second

// Explains declares that the handler of a request sends nothing after the end of its context but the reason. It has 5 seconds
// for that when the credential is withdrawn; the connections of other handlers are cut off then.
func Explains(ctx context.Context) {
	if s, ok := ctx.Value(activeKey{}).(*activeRequest); ok {
		s.explains.Store(true)
	}
}

// enter ends a request's context when its credential ends. The caller calls leave at the end of the request.
func (l *live) enter(w http.ResponseWriter, r *http.Request, c credential) (_ *http.Request, leave func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	s := &activeRequest{holds: c.stands, cancel: cancel, writer: http.NewResponseController(w)}
	l.mu.Lock()
	if l.of == nil {
		l.of = map[*activeRequest]struct{}{}
	}
	l.of[s] = struct{}{}
	l.mu.Unlock()
	return r.WithContext(context.WithValue(ctx, activeKey{}, s)), func() {
		l.mu.Lock()
		delete(l.of, s)
		l.mu.Unlock()
		cancel(nil)
	}
}

// cut ends the requests whose credential is no longer valid. A handler that ignores
// its context cannot write either, see Explains.
func (l *live) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.of {
		if !s.holds() {
			until := time.Now()
			if s.explains.Load() {
				until = until.Add(explainFor)
			}
			s.cancel(ErrWithdrawn)
			s.writer.SetWriteDeadline(until) // what has no connection has nothing to cut
			delete(l.of, s)
		}
	}
}
