package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/sandbox"
)

// The calls that suspend a session and continue it, in its run or in another one, see sandbox.Suspension.
const (
	callSuspend  = "suspend" // returns a file that has the sandbox.Resumed
	callContinue = "continue"
	callThaw     = "thaw"
	callSave     = "save" // by the privileged process, with the files for the devices and the pages, or without any
)

// suspender suspends the session of a worker.
type suspender struct{ *worker }

// handlers returns the calls of the owner of the session.
func (w suspender) handlers() map[string]privsep.Handler {
	plain := func(do func(sandbox.Suspension, context.Context) error) privsep.Handler {
		return privsep.Handle(func(ctx context.Context, _ none) (any, []*os.File, error) {
			s, err := w.current()
			if err == nil {
				err = do(sandbox.Suspension{Sandbox: s}, ctx)
			}
			return none{}, nil, err
		})
	}
	return map[string]privsep.Handler{
		callSuspend: privsep.Handle(w.suspend), callContinue: plain(sandbox.Suspension.Continue), callThaw: plain(sandbox.Suspension.Thaw),
	}
}

// suspend suspends the processes. All have been reported as ended when it returns.
func (w suspender) suspend(ctx context.Context, _ none) (any, []*os.File, error) {
	s, err := w.current()
	if err != nil {
		return nil, nil, err
	}
	if err := (sandbox.Suspension{Sandbox: s}).Suspend(ctx); err != nil {
		return nil, nil, err
	}
	f, err := privsep.Memory("identity", sandbox.Suspension{Sandbox: s}.Identity())
	return none{}, []*os.File{f}, err
}

// save writes the state of the machine to the files: its devices and its pages.
func (i *idle) save(ctx context.Context, _ []byte, files []*os.File) (any, []*os.File, error) {
	defer closeFiles(files)
	if len(files) != 2 && len(files) != 0 {
		return nil, nil, fmt.Errorf("the call has %d descriptors", len(files))
	}
	i.mu.Lock()
	w := i.worker
	i.mu.Unlock()
	if w == nil || w.processes == nil {
		return nil, nil, errors.New("the worker has no session")
	}
	s, err := w.current()
	if err != nil {
		return nil, nil, err
	}
	if len(files) == 0 {
		return saved{faultOf(sandbox.Suspension{Sandbox: s}.SaveFiles(ctx))}, nil, nil
	}
	pages := newPageWriter(files[1])
	err = sandbox.Suspension{Sandbox: s}.Save(ctx, sandbox.State{Device: files[0], Page: pages.page})
	if err == nil {
		err = pages.to.Flush()
	}
	return saved{faultOf(err)}, nil, nil
}

// saved is the result of a save.
type saved struct{ Err *fault }

// Save has the worker at the other end of a connection write the state of its machine, whose processes are suspended. device gets the state
// of the devices, page is called as by ReadPages. After an error the machine runs, or the owner of the run makes it run.
func Save(ctx context.Context, c *privsep.Conn, device *os.File, memory int64, page func(offset int64, b []byte) error) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	read := make(chan error, 1)
	go func() {
		err := ReadPages(r, memory, page)
		r.Close() // the worker notices an error
		read <- err
	}()
	var result saved
	_, err = c.Call(ctx, callSave, none{}, &result, device, w)
	w.Close()
	if ctx.Err() != nil {
		r.Close()
	}
	failed := <-read
	err = errors.Join(err, result.Err.err(nil))
	if err != nil && (errors.Is(failed, io.EOF) || errors.Is(failed, io.ErrUnexpectedEOF)) {
		return err // the reason why the pages ended
	}
	return errors.Join(failed, err)
}

// SaveFiles has the worker freeze its machine, so that its disk can be copied. What Save says about errors holds.
func SaveFiles(ctx context.Context, c *privsep.Conn) error {
	var result saved
	_, err := c.Call(ctx, callSave, none{}, &result)
	return errors.Join(err, result.Err.err(nil))
}

// Suspend suspends the processes of a session, and returns what the run needs that continues them. When it returns, each has ended
// with sandbox.ErrSuspended. An error that is sandbox.ErrNotSuspended means that nothing has changed; after another one the run ends.
func (s *Session) Suspend(ctx context.Context) (r sandbox.Resumed, err error) {
	files, err := s.worker.Call(ctx, callSuspend, none{}, nil)
	if err != nil {
		return r, s.failure(err)
	}
	if len(files) != 1 {
		closeFiles(files)
		return r, fmt.Errorf("%s: %d files in place of one", callSuspend, len(files))
	}
	return r, privsep.FromMemory(files[0], &r)
}

// Continue ends the suspension in this run. The processes that are attached (Process.Attach) run again from Thaw on.
func (s *Session) Continue(ctx context.Context) error {
	return s.call(ctx, callContinue, none{}, nil)
}

// Thaw lets the processes run that were suspended. Those that were not attached have no reader of their output.
func (s *Session) Thaw(ctx context.Context) error { return s.call(ctx, callThaw, none{}, nil) }

// Paused makes the run end as paused when Serve returns: another run continues its processes.
func (s *Session) Paused() { s.paused.Store(true) }
