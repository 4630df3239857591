package run

import (
	"context"
	"fmt"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/notify"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/sandbox"
)

const stallReason = "the record cannot be written"

// stall is the time in which the record cannot be written. Job.mu guards it.
//
//	writable --stalled--> stalled (strict: frozen) --resumed--> writable
type stall struct {
	frozen bool
	since  time.Time
	thaw   func()         // ends the freeze in the metrics
	waits  []sandbox.Wait // stalls that ended before there was a sandbox
}

// stalled freezes the VM: in strict mode nothing may happen that is not recorded.
func (j *Job) stalled(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.notifier.Send(notify.Message{Type: notify.Frozen, Severity: "error", Run: j.id, Detail: stallReason + ": " + j.Mask(err.Error())})
	if j.o.Project.Record.Mode != project.Strict {
		j.notice(stallReason + " (" + err.Error() + "): the run continues, and the record will declare what is lost (record.mode: degrade)")
		return
	}
	j.stall.frozen, j.stall.since, j.stall.thaw = true, time.Now().UTC(), func() {}
	if j.o.Meters != nil {
		j.stall.thaw = j.o.Meters.Freeze()
	}
	if j.sandbox != nil {
		j.sandbox.Hold(context.Background(), stallReason)
	}
	j.problem(fmt.Errorf(stallReason+" (%w): the sandbox is frozen until it can", err))
}

// resumed lets the VM go on.
func (j *Job) resumed() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.notice("the record can be written again")
	if j.stall.frozen {
		j.stall.thaw()
		if j.sandbox == nil {
			j.stall.waits = append(j.stall.waits, sandbox.Wait{From: j.stall.since, To: time.Now().UTC(), Reason: stallReason})
		}
	}
	j.stall.frozen = false
	if j.sandbox != nil {
		if err := j.sandbox.Release(context.Background(), stallReason); err != nil {
			j.notice("thaw: " + err.Error())
		}
	}
}

// posted returns what is called with each event of the run, nil if no message is sent.
func (j *Job) posted() audit.Posted {
	if j.notifier == nil {
		return nil
	}
	return func(ev audit.Event, seq uint64) {
		if ev.VM != nil && ev.VM.Reason == stallReason {
			return // it was sent as it began: the record of it comes at its end
		}
		if m, ok := notify.Of(ev, j.id, seq); ok {
			j.notifier.Send(m)
		}
	}
}
