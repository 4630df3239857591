package worker

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/custody-project/custody/egress"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/privsep"
)

// Session controls a live run in its worker. It is safe for concurrent use.
type Session struct {
	run     *run
	worker  *privsep.Conn
	ctx     context.Context // done when the run has ended
	end     context.CancelFunc
	passing sync.WaitGroup // forwards signals and sizes, and serves

	changing sync.Mutex  // held during SetPolicy
	paused   atomic.Bool // see Paused
}

// newSession returns the session of a started worker, and forwards signals.
func (r *run) newSession(worker *privsep.Conn) *Session {
	s := &Session{run: r, worker: worker}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.passing.Go(s.forward)
	return s
}

func (s *Session) close() {
	s.end()
	s.run.started.close()
	s.run.filings.close()
	s.passing.Wait()
}

// call makes a call of the worker.
func (s *Session) call(ctx context.Context, name string, args, result any, files ...*os.File) error {
	_, err := s.worker.Call(ctx, name, args, result, files...)
	return s.failure(err)
}

// failure returns the error of a call.
func (s *Session) failure(err error) error {
	if e := new(privsep.RemoteError); errors.As(err, &e) && e.Unwrap() == nil {
		return errors.New(e.Text)
	}
	return err
}

// callTime bounds a call whose caller does not wait for its effect.
const callTime = 10 * time.Second

// forward forwards signals and sizes of the terminal.
func (s *Session) forward() {
	for {
		ctx, cancel := context.WithTimeout(s.ctx, callTime)
		var err error
		select {
		case sig := <-s.run.Signals:
			err = s.call(ctx, callSignal, signalCall{sig}, nil)
		case size := <-s.run.Resizes:
			err = s.call(ctx, callResize, size, nil)
		case <-s.ctx.Done():
			cancel()
			return
		}
		cancel()
		if err != nil && s.ctx.Err() == nil {
			s.run.Events.Notice("the sandbox did not receive a signal or window size: " + err.Error())
		}
	}
}

// cancel makes the worker end the run.
func (s *Session) cancel(cause error) {
	ctx, cancel := context.WithTimeout(s.ctx, callTime)
	defer cancel()
	_ = s.call(ctx, callCancel, faultOf(cause), nil) // a worker that does not answer is killed
}

// SetPolicy puts another policy into force.
func (s *Session) SetPolicy(ctx context.Context, p *netpolicy.Policy) (egress.Change, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	rules := Rules(p)
	f, err := privsep.Memory("policy", rules)
	if err != nil {
		return egress.Change{}, err
	}
	defer f.Close()
	before := s.run.allowed()
	if err := s.run.Sandbox.SetPolicy(ctx, rules); err != nil {
		return egress.Change{}, err
	}
	var c changed
	if err := s.call(ctx, callPolicy, none{}, &c, f); err != nil {
		return egress.Change{}, errors.Join(err, s.run.Sandbox.SetPolicy(ctx, Rules(before)))
	}
	s.run.setPolicy(p)
	return egress.Change{Generation: c.Generation, Digest: c.Digest, Previous: c.Previous, Ended: c.Ended}, nil
}

// Pause revokes the step's credentials and freezes the sandbox.
func (s *Session) Pause(ctx context.Context) error { return s.call(ctx, callPause, none{}, nil) }

// Resume lets a paused sandbox run again.
func (s *Session) Resume(ctx context.Context) error { return s.call(ctx, callResume, none{}, nil) }

// Quiet returns for how long the processes of the sandbox have done nothing; see sandbox.Sandbox.
func (s *Session) Quiet(ctx context.Context) (quiet time.Duration, err error) {
	err = s.call(ctx, callQuiet, none{}, &quiet)
	return quiet, err
}

// Snapshot writes the sandbox's memory to a file. After an error the file's contents must be discarded.
func (s *Session) Snapshot(ctx context.Context, to *os.File, endStep bool) error {
	return s.call(ctx, callSnapshot, snapshotCall{endStep}, nil, to)
}
