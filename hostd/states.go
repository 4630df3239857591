package hostd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/state"
	"github.com/custody-project/custody/worker"
)

// States are the stored states of paused sandboxes.
type States interface {
	// Stored describes the state of a run of a tenant. The error is state.ErrNotFound if there is none.
	Stored(ctx context.Context, tenant, run string) (worker.Saved, error)
	// Discard removes it. It is no error if there is none.
	Discard(ctx context.Context, tenant, run string) error
}

var (
	_ States = (*Host)(nil)
	_ States = (*Client)(nil)
)

// Stored implements States.
func (h *Host) Stored(ctx context.Context, tenant, run string) (worker.Saved, error) {
	if !h.hasStates() {
		return worker.Saved{}, fmt.Errorf("run %s: %w", run, state.ErrNotFound)
	}
	store, err := h.states()
	if err != nil {
		return worker.Saved{}, err
	}
	info, err := store.Stat(run)
	if err == nil && info.Tenant != tenant && !info.Damaged {
		err = &state.BoundError{Run: run, What: state.BoundTenant}
	}
	saved := worker.Saved{Size: info.Size, Created: info.Created, Expires: info.Expires}
	if err != nil || info.Damaged {
		return saved, err
	}
	saved.Files, _ = h.part(ctx, tenant, run, partFiles, maxReason) // a state that cannot be opened is still there: a resume gets the error
	return saved, nil
}

// Discard implements States.
func (h *Host) Discard(ctx context.Context, tenant, run string) error {
	_, err := h.Stored(ctx, tenant, run)
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete the paused state: %w", err)
	}
	store, err := h.states()
	if err != nil {
		return err
	}
	return store.Delete(ctx, run)
}

// sweepEvery is how often the states are removed that have expired, of sandboxes that no service has any more.
const sweepEvery = time.Hour

// sweep removes them until ctx is done.
func (h *Host) sweep(ctx context.Context, notice func(string)) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if err := h.sweepOnce(ctx); err != nil && ctx.Err() == nil {
			notice("remove stored states that have expired: " + err.Error())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (h *Host) sweepOnce(ctx context.Context) error {
	if !h.hasStates() {
		return nil
	}
	store, err := h.states()
	if err != nil {
		return err
	}
	return store.Sweep(ctx)
}

// hasStates reports whether a sandbox has been paused on this host.
func (h *Host) hasStates() bool {
	_, err := os.Stat(h.Home.States())
	return !errors.Is(err, fs.ErrNotExist)
}

// stored is the argument of callStored and callDiscard.
type stored struct{ Tenant, Run string }

// Stored implements States.
func (c *Client) Stored(ctx context.Context, tenant, run string) (saved worker.Saved, err error) {
	_, err = signatures{c}.Call(ctx, callStored, stored{tenant, run}, &saved)
	return saved, err
}

// Discard implements States.
func (c *Client) Discard(ctx context.Context, tenant, run string) error {
	_, err := signatures{c}.Call(ctx, callDiscard, stored{tenant, run}, nil)
	return err
}

// stateCalls returns the calls about stored states.
func stateCalls(s States) map[string]privsep.Handler {
	return map[string]privsep.Handler{
		callStored:  handle(func(ctx context.Context, c stored) (any, error) { return s.Stored(ctx, c.Tenant, c.Run) }),
		callDiscard: handle(func(ctx context.Context, c stored) (any, error) { return none{}, s.Discard(ctx, c.Tenant, c.Run) }),
	}
}
