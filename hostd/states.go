package hostd

import (
	"context"
	"errors"
	"fmt"

	"github.com/custody-project/custody/state"
)

// States are the stored states of paused sandboxes.
type States interface {
	// Discard removes the state of a run of a tenant. It is no error if there is none.
	Discard(ctx context.Context, tenant, run string) error
}

var (
	_ States = (*Host)(nil)
	_ States = (*Client)(nil)
)

// Discard implements States.
func (h *Host) Discard(ctx context.Context, tenant, run string) error {
	store, err := h.states()
	if err != nil {
		return err
	}
	info, err := store.Stat(run)
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	if err == nil && info.Tenant != tenant && !info.Damaged {
		err = fmt.Errorf("delete the paused state of run %s: %w", run, &state.BoundError{Run: run, What: state.BoundTenant})
	}
	if err != nil {
		return err
	}
	return store.Delete(ctx, run)
}

// discarded is the argument of callDiscard.
type discarded struct{ Tenant, Run string }

// Discard implements States.
func (c *Client) Discard(ctx context.Context, tenant, run string) error {
	_, err := signatures{c}.Call(ctx, callDiscard, discarded{tenant, run}, nil)
	return err
}
