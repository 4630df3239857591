package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/custody-project/custody/notify"
	"github.com/custody-project/custody/sandbox"
)

const stallReason = "the record cannot be written"

// freezer freezes the run's sandbox while the record cannot be written. Its methods are safe for
// concurrent use.
//
//	writable --stalled--> stalled (strict: frozen) --resumed--> writable
type freezer struct {
	notifier *notify.Notifier
	messages *messages
	meters   Meters // nil: no metrics
	strict   bool   // record.mode is strict; in degrade mode the sandbox is not frozen

	mu      sync.Mutex // guards the fields below
	id      string     // of the run, "" before it begins
	sandbox *sandbox.Sandbox
	frozen  bool
	since   time.Time
	thaw    func()         // records the end of the freeze in the metrics
	waits   []sandbox.Wait // stalls that ended before there was a sandbox
}

// begin gives the freezer the run's ID.
func (f *freezer) begin(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.id = id
}

// waited returns the stalls before the sandbox was started.
func (f *freezer) waited() []sandbox.Wait {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waits
}

// started sets the sandbox. It is called before the guest runs.
func (f *freezer) started(ctx context.Context, s *sandbox.Sandbox) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sandbox = s
	if f.frozen {
		s.Hold(ctx, stallReason)
	}
}

// current returns the run's sandbox, nil before there is one.
func (f *freezer) current() *sandbox.Sandbox {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sandbox
}

// awake returns a function that calls do with the sandbox, or returns an error if it has not been started.
func (f *freezer) awake(do func(*sandbox.Sandbox, context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		s := f.current()
		if s == nil {
			return errors.New("the run is starting: try again")
		}
		return do(s, ctx)
	}
}

// stalled is called when the record cannot be written. In strict mode it freezes the VM.
func (f *freezer) stalled(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notifier.Send(notify.Message{Type: notify.Frozen, Severity: "error", Run: f.id, Detail: stallReason + ": " + f.messages.mask(err.Error())})
	if !f.strict {
		f.messages.notice(stallReason + " (" + err.Error() + "): the run continues, and the record will declare the lost events (record.mode: degrade)")
		return
	}
	f.frozen, f.since, f.thaw = true, time.Now().UTC(), func() {}
	if f.meters != nil {
		f.thaw = f.meters.Freeze()
	}
	if f.sandbox != nil {
		f.sandbox.Hold(context.Background(), stallReason)
	}
	f.messages.problem(fmt.Errorf(stallReason+" (%w): the sandbox is frozen until it can", err))
}

// resumed is called when the record can be written again. It lets the VM run.
func (f *freezer) resumed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.messages.notice("the record can be written again")
	if f.frozen {
		f.thaw()
		if f.sandbox == nil {
			f.waits = append(f.waits, sandbox.Wait{From: f.since, To: time.Now().UTC(), Reason: stallReason})
		}
	}
	f.frozen = false
	if f.sandbox != nil {
		if err := f.sandbox.Release(context.Background(), stallReason); err != nil {
			f.messages.notice("thaw: " + err.Error())
		}
	}
}
