package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/sandbox"
)

// handlers returns the calls with which Run controls the worker.
func (w *worker) handlers() map[string]privsep.Handler {
	awake := func(do func(*sandbox.Sandbox, context.Context) error) privsep.Handler {
		return privsep.Handle(func(ctx context.Context, _ none) (any, []*os.File, error) {
			s, err := w.current()
			if err == nil {
				err = do(s, ctx)
			}
			return none{}, nil, err
		})
	}
	return map[string]privsep.Handler{
		callPause: awake((*sandbox.Sandbox).Pause), callResume: awake((*sandbox.Sandbox).Resume),
		callPolicy: w.change, callSnapshot: w.snapshot,
		callCancel: privsep.Handle(func(_ context.Context, f fault) (any, []*os.File, error) {
			w.cancel(f.err(nil))
			return none{}, nil, nil
		}),
		callSignal: privsep.Handle(func(ctx context.Context, c signalCall) (any, []*os.File, error) {
			return none{}, nil, send(ctx, w.signals, c.Signal)
		}),
		callResize: privsep.Handle(func(ctx context.Context, size channel.Winsize) (any, []*os.File, error) {
			return none{}, nil, send(ctx, w.resizes, size)
		}),
	}
}

// send passes a value to the current step. It is dropped when many wait.
func send[T syscall.Signal | channel.Winsize](ctx context.Context, to chan T, v T) error {
	select {
	case to <- v:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	default:
		return errors.New("no step takes it")
	}
}

// current returns the run's sandbox.
func (w *worker) current() (*sandbox.Sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sandbox == nil {
		return nil, errors.New("the run is starting: try again")
	}
	return w.sandbox, nil
}

// started sets the sandbox. It is called before the guest has its identity.
func (w *worker) started(ctx context.Context, s *sandbox.Sandbox) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sandbox = s
	if w.stalled {
		s.Hold(ctx, stallReason)
	}
}

const stallReason = "the record cannot be written"

// stall is called when the record cannot be written. In strict mode it freezes the VM.
func (w *worker) stall(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.order.Mode == "strict" {
		w.stalled = true
		if w.sandbox != nil {
			w.sandbox.Hold(context.Background(), stallReason)
		}
	}
	w.reports.fault(callStalled, err)
}

// resume is called when the record can be written again. It lets the VM run.
func (w *worker) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stalled = false
	w.reports.call(callResumed, none{}, nil)
	if w.sandbox == nil {
		return
	}
	if err := w.sandbox.Release(context.Background(), stallReason); err != nil {
		w.notice("thaw: " + err.Error())
	}
}

// oneFile returns the only file of a call.
func oneFile(files []*os.File) (*os.File, error) {
	if len(files) == 1 {
		return files[0], nil
	}
	for _, f := range files {
		f.Close()
	}
	return nil, fmt.Errorf("the call has %d descriptors", len(files))
}

// change puts another policy into force.
func (w *worker) change(ctx context.Context, _ []byte, files []*os.File) (any, []*os.File, error) {
	f, err := oneFile(files)
	if err != nil {
		return nil, nil, err
	}
	var rules []string
	if err := privsep.FromMemory(f, &rules); err != nil {
		return nil, nil, err
	}
	policy, err := PolicyOf(rules)
	if err != nil {
		return nil, nil, err
	}
	if _, err := w.current(); err != nil {
		return nil, nil, err
	}
	c, err := w.network.Change(ctx, policy)
	return changed{c.Generation, c.Digest, c.Previous, c.Ended}, nil, err
}

// snapshot writes the sandbox's memory to a file.
func (w *worker) snapshot(ctx context.Context, body []byte, files []*os.File) (any, []*os.File, error) {
	f, err := oneFile(files)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	var c snapshotCall
	if err := privsep.Decode(body, &c); err != nil {
		return nil, nil, err
	}
	s, err := w.current()
	if err != nil {
		return nil, nil, err
	}
	if err := s.Dump(ctx, f, c.EndStep); err != nil {
		return nil, nil, err
	}
	return none{}, nil, os.NewSyscallError("fsync", unix.Fsync(int(f.Fd())))
}

// sighted reports to the issuer which secret values were found in an event. The issuer searches output itself.
func (w *worker) sighted(kind audit.Kind, step string, names []string, seq uint64) {
	w.reports.masked(len(names))
	if kind != audit.KindOutput && w.issuer != nil {
		w.issuer.Saw(kind, step, names, seq)
	}
}
