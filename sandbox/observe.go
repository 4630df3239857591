package sandbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/vmm"
)

// observation records the events that a driver observes from the host. If the guest has a
// sensor instead, its methods do nothing.
type observation struct {
	driver   vmm.Observer // nil: the guest has a sensor
	recorder Recorder
	starting sync.Mutex // held from beginStep until the guest has started the command, of which the driver sees no name
}

// byHost reports whether the driver observes the sandbox.
func (o *observation) byHost() bool { return o.driver != nil }

// beginRun makes the driver report what happens from now on, as events of the run.
func (o *observation) beginRun(ctx context.Context, r vmm.Observed) error {
	if !o.byHost() {
		return nil
	}
	if err := o.driver.BeginRun(ctx, r); err != nil {
		return fmt.Errorf("observe the sandbox: %w", err)
	}
	return nil
}

// observeTimeout bounds how long a driver may take to report what happened in a step that has ended.
const observeTimeout = time.Minute

// beginStep names the step whose command the guest starts next. started must be called when it has, or will not.
func (o *observation) beginStep(ctx context.Context, step string) (started func(), err error) {
	if !o.byHost() {
		return func() {}, nil
	}
	o.starting.Lock()
	started = sync.OnceFunc(o.starting.Unlock)
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	return started, o.driver.BeginStep(ctx, step)
}

// endStep returns when all events of the step have been recorded. If that fails, it records a gap.
func (o *observation) endStep(ctx context.Context, step string) error {
	if !o.byHost() {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	err := o.driver.EndStep(limited, step)
	if err == nil {
		return nil
	}
	_, recorded := o.recorder.Post(ctx, audit.Event{
		Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindGap, Step: step,
		Gap: &audit.Gap{Stage: audit.StageGuest, Cause: "the driver did not report everything: " + err.Error()},
	})
	return recorded
}
