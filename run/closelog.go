package run

import (
	"context"
	"errors"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/notify"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/worker"
)

// CloseLog returns a host.LogCloser that starts a worker for each log; start is nil: this program. The process needs the key.
func CloseLog(start hostd.StartWorker) host.LogCloser {
	return closeLog(func(_ context.Context, d host.DeadLog) (worker.Sandbox, error) {
		if d.Signer == nil {
			return nil, &host.KeyElsewhereError{}
		}
		return hostd.NewRecovery(start, d.Signer), nil
	})
}

// CloseLogThrough returns a host.LogCloser for a process without the key, to which o gives what is left of sandboxes.
func CloseLogThrough(o hostd.Opener) host.LogCloser {
	return closeLog(func(ctx context.Context, d host.DeadLog) (worker.Sandbox, error) { return o.Reopen(ctx, d.Run) })
}

func closeLog(open func(context.Context, host.DeadLog) (worker.Sandbox, error)) host.LogCloser {
	return func(ctx context.Context, d host.DeadLog) (interrupted bool, err error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		left, err := open(ctx, d)
		if err != nil {
			return false, err
		}
		result, err := worker.Recover(ctx, worker.Options{
			Config:  worker.Config{Settings: sandbox.Settings{Run: d.Run}, TagKey: d.TagKey},
			Sandbox: left, Log: d.Files, Events: recovered{cancel},
		})
		err = errors.Join(err, result.Err, result.Record, context.Cause(ctx), left.Close())
		return result.Status == audit.StatusInterrupted, err
	}
}

// recovered gets what a worker reports that closes the log of a dead run. It does not wait for space on a full disk: the next start closes the
// log.
type recovered struct{ cancel context.CancelCauseFunc }

var _ worker.Events = recovered{}

// Stalled implements worker.Events.
func (r recovered) Stalled(err error) { r.cancel(err) }

// Notice implements worker.Events.
func (recovered) Notice(string) {}

// Progress implements worker.Events.
func (recovered) Progress(string) {}

// Problem implements worker.Events.
func (recovered) Problem(error) {}

// Resumed implements worker.Events.
func (recovered) Resumed() {}

// Committed implements worker.Events.
func (recovered) Committed(int, int, time.Duration, uint64) {}

// Sealed implements worker.Events.
func (recovered) Sealed() {}

// Masked implements worker.Events.
func (recovered) Masked(int) {}

// Notify implements worker.Events.
func (recovered) Notify(notify.Message) {}

// Charge implements worker.Events.
func (recovered) Charge(int64) (string, time.Time) { return "", time.Time{} }

// Room implements worker.Events.
func (recovered) Room() error { return nil }
