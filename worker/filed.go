package worker

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/sandbox"
)

// Filed is an operation on a file of a session.
type Filed struct {
	session *Session
	id      uint64
	done    chan struct{} // closed when result and err are set
	result  channel.FileResult
	err     error
}

// filings are the operations on files of a session, in the process that owns the run.
type filings struct {
	mu   sync.Mutex // guards the fields below
	live map[uint64]*Filed
	last uint64
	over bool
}

func newFilings() *filings { return &filings{live: map[uint64]*Filed{}} }

func (f *filings) add(s *Session) (*Filed, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return nil, errSessionOver
	}
	f.last++
	op := &Filed{session: s, id: f.last, done: make(chan struct{})}
	f.live[op.id] = op
	return op, nil
}

// end sets the result of an operation. It reports whether there is such an operation.
func (f *filings) end(id uint64, r channel.FileResult, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	op := f.live[id]
	if op == nil {
		return false
	}
	delete(f.live, id)
	op.result, op.err = r, err
	close(op.done)
	return true
}

// close ends what the worker has not reported.
func (f *filings) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	for id, op := range f.live {
		delete(f.live, id)
		op.err = errSessionOver
		close(op.done)
	}
}

// handlers returns the call with which a worker reports the end of an operation.
func (f *filings) handlers(causes func() []error) map[string]privsep.Handler {
	return map[string]privsep.Handler{
		callFiled: privsep.Handle(func(_ context.Context, r filed) (any, []*os.File, error) {
			err := r.Err.err(causes())
			if r.File != nil {
				err = r.File
			}
			if !f.end(r.ID, r.Result, err) {
				return nil, nil, errors.New("no such operation was started")
			}
			return none{}, nil, nil
		}),
	}
}

// File starts an operation on a file. pipe is the reading end of a pipe for the content of a write, and otherwise the writing end of one
// for the content of a read, for the entries of a directory, as channel.FileInfo in JSON, or for its changes, as channel.FileChange; each is
// a line. The caller can close it when File has returned. ctx bounds only the start.
func (s *Session) File(ctx context.Context, c sandbox.FileCall, pipe *os.File) (*Filed, error) {
	op, err := s.run.filings.add(s)
	if err != nil {
		return nil, err
	}
	if err := s.call(ctx, callFile, fileCall{op.id, c}, nil, pipe); err != nil {
		s.run.filings.end(op.id, channel.FileResult{}, err)
		return nil, err
	}
	return op, nil
}

// Complete declares that all content of a write is in the pipe. Without it, nothing is written when the pipe is closed.
func (f *Filed) Complete(ctx context.Context) error {
	return f.session.call(ctx, callFileComplete, fileID{f.id}, nil)
}

// End ends the operation. Result still waits until it has ended.
func (f *Filed) End() {
	ctx, cancel := context.WithTimeout(f.session.ctx, callTime)
	defer cancel()
	_ = f.session.call(ctx, callEndFile, fileID{f.id}, nil) // it fails only if the worker ends, and the operation with it
}

// Done is closed when the operation has ended.
func (f *Filed) Done() <-chan struct{} { return f.done }

// Result waits for the end of the operation. An error can be a channel.FileError.
func (f *Filed) Result() (channel.FileResult, error) {
	<-f.done
	return f.result, f.err
}
