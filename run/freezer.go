package run

import (
	"fmt"
	"sync"
	"time"

	"github.com/custody-project/custody/notify"
	"github.com/custody-project/custody/sandbox"
)

const stallReason = "the record cannot be written"

// freezer reports that the record cannot be written, and counts the time. The worker freezes the sandbox meanwhile. Its methods are safe for
// concurrent use.
//
//	writable --stalled--> stalled (strict: frozen) --resumed--> writable
type freezer struct {
	notifier *notify.Notifier
	messages *messages
	meters   Meters // nil: no metrics
	strict   bool   // record.mode is strict; in degrade mode the sandbox is not frozen

	mu     sync.Mutex // guards the fields below
	id     string     // of the run, "" before it begins
	begun  bool       // the worker records stalls from now on
	frozen bool
	since  time.Time
	thaw   func()         // records the end of the freeze in the metrics
	waits  []sandbox.Wait // stalls that ended before that
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

// live is called before the worker starts.
func (f *freezer) live() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun = true
}

// stalled is called when the record cannot be written. In strict mode the VM is frozen.
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
	f.messages.problem(fmt.Errorf(stallReason+" (%w): the sandbox is frozen until it can", err))
}

// resumed is called when the record can be written again.
func (f *freezer) resumed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.messages.notice("the record can be written again")
	if f.frozen {
		f.thaw()
		if !f.begun {
			f.waits = append(f.waits, sandbox.Wait{From: f.since, To: time.Now().UTC(), Reason: stallReason})
		}
	}
	f.frozen = false
}
