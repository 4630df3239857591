package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
)

// ErrSuspended means that the processes of the sandbox are suspended.
var ErrSuspended = channel.ErrSuspended

// suspendTime bounds how long the guest may take to stop its processes, and Suspend to record their last output.
const suspendTime = time.Minute

// Suspension suspends a sandbox, and continues it. It is safe for concurrent use.
//
//	running --Suspend--> suspended --Continue--> resuming: Steps attach --Thaw--> running
//	                       |    ^
//	                  Save v    | failed
//	                     saving ---> saved --Close--> gone
type Suspension struct{ Sandbox *Sandbox }

// Suspend stops the processes of a session, which stay in the memory of the VM. Each Step returns ErrSuspended after all output of its
// command so far has been recorded. Suspend first revokes all credentials and removes them from the guest. Then nothing may write to the
// steps' Stdin any more; what has been written before is not lost. An error that is ErrNotSuspended means that nothing else has changed.
// After another one the run ends.
func (p Suspension) Suspend(ctx context.Context) error {
	s := p.Sandbox
	s.turn.Lock()
	defer s.turn.Unlock()
	switch {
	case s.over:
		return fmt.Errorf("%w: the run is ending", ErrNotSuspended)
	case s.observed.byHost():
		return fmt.Errorf("%w: sandboxes of the isolation %s cannot be paused", ErrNotSuspended, s.warm.machine.Driver.Tier())
	case s.holds.frozen():
		return fmt.Errorf("%w: the sandbox is frozen", ErrNotSuspended)
	case !s.suspended.CompareAndSwap(false, true):
		return ErrSuspended
	}
	ctx, cancel := context.WithTimeout(ctx, suspendTime)
	defer cancel()
	guest := s.warm.guest()
	err := s.running.started(ctx)
	if err == nil {
		err = s.credentials.disarm(ctx, "the sandbox is suspended")
	}
	if err == nil {
		s.drain(ctx)
		err = channel.Suspension{Client: guest}.Suspend(ctx, s.running.stopInput)
	}
	if err != nil && guest.Err() == nil {
		s.suspended.Store(false)
		return fmt.Errorf("%w: %w", ErrNotSuspended, err)
	}
	if err == nil {
		err = s.running.wait(ctx)
	}
	if err == nil {
		err = channel.Suspension{Client: guest}.Park(ctx)
	}
	if err != nil {
		err = s.warm.diagnose(err)
		s.abort(err)
	}
	return err
}

// ErrNotBegun is an ErrSuspended of a Step that did not begin: it is not in the record, and can be repeated in the sandbox that continues.
var ErrNotBegun = fmt.Errorf("the step has not begun: %w", ErrSuspended)

// ErrNotSuspended means that the processes could not be suspended, and run.
var ErrNotSuspended = errors.New("the processes were not suspended")

// Continue makes the guest of a suspended sandbox accept steps again, also after Save. Its processes do not run before Thaw.
func (p Suspension) Continue(ctx context.Context) error {
	s := p.Sandbox
	s.turn.Lock()
	defer s.turn.Unlock()
	if !s.suspended.Load() {
		return errors.New("the sandbox is not suspended")
	}
	if err := s.holds.release(ctx, saveHold); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	if err := s.warm.connect(limited); err != nil {
		return err
	}
	id, err := s.settings.identity(s.parts.Network.Trust())
	if err != nil {
		return err
	}
	id.MachineID, id.Hostname = s.identity.MachineID, s.identity.Hostname
	guest := s.warm.guest()
	channel.Suspension{Client: guest}.Recall(s.steps.names()...)
	if err := guest.Identify(limited, id); err != nil {
		return s.warm.diagnose(err)
	}
	s.suspended.Store(false)
	return nil
}

// Thaw lets the processes run that were suspended. It first waits for the steps that have begun to attach, so that their commands find
// their new credentials. Commands that no Step was attached to have no reader of their output, and no credentials.
func (p Suspension) Thaw(ctx context.Context) error {
	s := p.Sandbox
	ctx, cancel := context.WithTimeout(ctx, suspendTime)
	defer cancel()
	if err := s.running.started(ctx); err != nil {
		return fmt.Errorf("wait until all steps are attached: %w", err)
	}
	return channel.Suspension{Client: s.warm.guest()}.Thaw(ctx)
}

// startCommand starts the command of a step, or attaches it to the one that runs.
func startCommand(ctx context.Context, guest *channel.Client, st Step, cmd channel.Command) (*channel.Process, error) {
	if st.Attach {
		return channel.Suspension{Client: guest}.Attach(ctx, cmd)
	}
	return guest.Start(ctx, cmd)
}

// feeder copies the input of a command.
type feeder struct {
	to   io.WriteCloser
	from io.Reader
	done chan struct{} // closed when nothing is copied any more
}

// feed copies standard input in the background. The goroutine is not waited for, because a read from
// the caller's terminal cannot be interrupted. It uses only from and to.
func (r *running) feed(proc *channel.Process, from io.Reader) {
	if from == nil {
		proc.Stdin.Close()
		return
	}
	f := &feeder{proc.Stdin, from, make(chan struct{})}
	r.mu.Lock()
	r.feeders[proc] = f
	r.mu.Unlock()
	go func() {
		defer close(f.done)
		if _, err := io.Copy(f.to, from); !errors.Is(err, os.ErrDeadlineExceeded) {
			f.to.Close()
		}
	}()
}

// stopInput ends the copying of input, after all has been copied that was written before.
func (r *running) stopInput() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all sync.WaitGroup
	for _, f := range r.feeders {
		all.Go(f.stop)
	}
	all.Wait()
}

// stop ends a feeder. Input that is no pipe stays where it is.
func (f *feeder) stop() {
	file, ok := f.from.(*os.File)
	if !ok || file.SetReadDeadline(time.Unix(1, 0)) != nil {
		return
	}
	<-f.done
	raw, err := file.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		buf := make([]byte, 32<<10)
		for {
			n, err := unix.Read(int(fd), buf)
			if n <= 0 && !errors.Is(err, syscall.EINTR) {
				return
			}
			if _, err := f.to.Write(buf[:max(n, 0)]); err != nil {
				return
			}
		}
	})
	file.SetReadDeadline(time.Time{})
}

// wait returns when no command runs.
func (r *running) wait(ctx context.Context) error {
	return r.until(ctx, func() bool { return len(r.procs) == 0 })
}

// started returns when the commands of all steps that have begun have started, or are attached.
func (r *running) started(ctx context.Context) error {
	return r.until(ctx, func() bool { return r.begun == 0 })
}

// until returns when a condition holds, which is called with mu locked.
func (r *running) until(ctx context.Context, holds func() bool) error {
	for {
		r.mu.Lock()
		now, changed := holds(), r.changed
		r.mu.Unlock()
		if now {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
