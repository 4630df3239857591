package home

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/custody-project/custody/audit/store"
)

// shown compares what a store elsewhere answers, row by row and column by column, with the records of this host's runs.
// What the store keeps beside that, such as its indexes, and runs of which there is no log here it does not see.
func (f *fsck) shown(ctx context.Context) error {
	st, err := f.home.Store(ctx)
	if err != nil {
		return fmt.Errorf("fsck: store: %w", err)
	}
	defer st.Close()
	marks, err := f.home.Marks(st)
	if err != nil {
		return err
	}
	marks.budget = math.MaxInt64
	for _, id := range append(f.whole, f.pruned...) {
		run, err := st.Run(ctx, f.home.tenantOf(id), id)
		if errors.Is(err, store.ErrNotFound) {
			f.found(id, 0, fmt.Errorf("%w: it has no summary of the run", ErrRowAltered))
			continue
		}
		if err != nil {
			return err
		}
		if err := f.shownRun(ctx, st, marks, run); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (f *fsck) shownRun(ctx context.Context, st store.Store, marks *Marks, run store.Run) error {
	for row, err := range st.Records(ctx, store.Query{Tenant: run.Tenant, Run: run.ID}) {
		if err != nil {
			return err
		}
		if mark := marks.Row(ctx, row); mark.Wrong() {
			f.found(run.ID, 0, fmt.Errorf("%w: record %d: %s", ErrRowAltered, row.Seq, mark.Text))
		}
	}
	if mark := marks.Run(ctx, run); mark.Wrong() {
		f.found(run.ID, 0, fmt.Errorf("%w: the run's summary: %s", ErrRowAltered, mark.Text))
	}
	return ctx.Err()
}
