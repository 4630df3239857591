package fleet

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

// input is the writing end of a process's input. While the sandbox is paused, writers wait.
//
//	open <--hold, resume--> held
//	  \                      /
//	   +------- Close ------+--> closed
type input struct {
	writing sync.Mutex // held during a write, so that writes are not mixed

	mu     sync.Mutex // guards the fields below
	file   *os.File   // nil: closed
	held   chan struct{}
	closed bool
}

var errInputClosed = conflict("the input of the process is closed")

// current returns the file to write to, and a channel that is closed when another one is to be asked for; nil: this one can be written to.
func (i *input) current() (f *os.File, held <-chan struct{}, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.closed:
		return nil, nil, errInputClosed
	case i.held != nil:
		return nil, i.held, nil
	}
	return i.file, nil, nil
}

// write writes all of b, unless ctx is done before.
func (i *input) write(ctx context.Context, b []byte) (n int, err error) {
	i.writing.Lock()
	defer i.writing.Unlock()
	for {
		f, held, err := i.current()
		switch {
		case err != nil || n == len(b):
			return n, err
		case held == nil:
			some, err := i.writeTo(ctx, f, b[n:])
			if n += some; err != nil {
				return n, err
			}
		default:
			if err := i.await(ctx, held); err != nil {
				return n, err
			}
		}
	}
}

// await waits until the input is not held any more. The caller holds writing, which hold gets meanwhile.
func (i *input) await(ctx context.Context, held <-chan struct{}) error {
	i.writing.Unlock()
	defer i.writing.Lock()
	select {
	case <-held:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// writeTo writes to a file. It returns without an error when the input is held.
func (i *input) writeTo(ctx context.Context, f *os.File, b []byte) (int, error) {
	stop := context.AfterFunc(ctx, func() { f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	n, err := f.Write(b)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		i.permit(f)
		err = context.Cause(ctx) // nil if the input is held
	case errors.Is(err, os.ErrClosed), errors.Is(err, syscall.EPIPE):
		err = errInputClosed
	}
	return n, err
}

// permit lets later writes to a file wait, unless the input is held.
func (i *input) permit(f *os.File) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.held == nil {
		f.SetWriteDeadline(time.Time{})
	}
}

// hold makes writers wait, and returns when none writes.
func (i *input) hold() {
	i.mu.Lock()
	if i.closed || i.held != nil {
		i.mu.Unlock()
		return
	}
	i.held = make(chan struct{})
	i.file.SetWriteDeadline(time.Unix(1, 0))
	i.mu.Unlock()
	i.writing.Lock()
	defer i.writing.Unlock()
}

// resume lets writers continue with another file, or with the same one if f is nil. If the input was closed meanwhile, so is f.
func (i *input) resume(f *os.File) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if f != nil {
		if i.file != nil {
			i.file.Close()
		}
		i.file = f
	}
	if i.closed {
		i.drop()
		return
	}
	i.file.SetWriteDeadline(time.Time{})
	if i.held != nil {
		close(i.held)
		i.held = nil
	}
}

// Close ends the input, after what has been written while it is held. It may be called repeatedly.
func (i *input) Close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	if i.held != nil {
		close(i.held)
		i.held = nil
	}
	i.drop()
}

// isClosed reports whether the input was closed.
func (i *input) isClosed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.closed
}

func (i *input) drop() {
	if i.file != nil {
		i.file.Close()
		i.file = nil
	}
}
