package host

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/store"
)

// comparing is a store that can compare its rows with signed segments.
type comparing interface {
	// Check compares the definitions, and names runs with rows that belong to no segment.
	Check(ctx context.Context) ([]store.Difference, error)
	// Differs states how the rows of a segment differ from its records, "" if they do not.
	Differs(ctx context.Context, seg store.Segment) (string, error)
}

// shown compares the rows and columns that a store elsewhere returns with the records of this host's runs, then checks the
// store's definitions and rows. A run of this host without a log here must have a signed record in the store; of a run of
// another host, the first manifest must be signed.
func (f *fsck) shown(ctx context.Context, trusted note.Verifiers) error {
	st, err := f.host.Store(ctx)
	if err != nil {
		return fmt.Errorf("fsck: store: %w", err)
	}
	defer st.Close()
	marks, err := f.host.Checks().Marks(st)
	if err != nil {
		return err
	}
	marks.budget = math.MaxInt64
	for _, id := range append(f.whole, f.pruned...) {
		run, err := st.Run(ctx, f.host.RunLogs().tenantOf(id), id)
		if errors.Is(err, store.ErrNotFound) {
			f.found(id, 0, fmt.Errorf("%w: it has no summary of the run", ErrRowAltered))
			continue
		}
		if errors.Is(err, store.ErrAmbiguous) {
			continue // it has the run under several tenants, which strangers reports
		}
		if err != nil {
			return err
		}
		before := len(f.checked.Problems)
		if err := f.shownRun(ctx, st, marks, run); err != nil {
			return err
		}
		if c, can := st.(comparing); can && len(f.checked.Problems) == before && slices.Contains(f.whole, id) {
			if err := f.compared(ctx, c, id); err != nil {
				return err
			}
		}
	}
	if c, can := st.(comparing); can {
		differences, err := c.Check(ctx)
		if err != nil {
			return fmt.Errorf("fsck: store: %w", err)
		}
		for _, d := range differences {
			f.differs(d)
		}
	}
	return errors.Join(f.strangers(ctx, st, marks, trusted), ctx.Err())
}

// compared has the store compare the rows of a run with its log. This finds rows that readers skip, such as a second row for one record.
func (f *fsck) compared(ctx context.Context, c comparing, run string) error {
	for seg, err := range f.host.Shipping().segments(ctx, []string{run}) {
		if err != nil {
			return err
		}
		what, err := c.Differs(ctx, seg)
		if err != nil {
			return err
		}
		if what != "" {
			f.found(run, seg.Index, fmt.Errorf("%w: segment %d: %s", ErrRowAltered, seg.Index, what))
		}
	}
	return nil
}

// differs reports a difference that the store's own check found. Rows of a live run may have no segment yet.
func (f *fsck) differs(d store.Difference) {
	switch {
	case d.Run == "":
		f.found("", 0, fmt.Errorf("%w: %s", ErrRowAltered, d.Text))
	case !f.host.RunLogs().Live(d.Run):
		f.found(d.Run, 0, fmt.Errorf("%w: %s", ErrRunUnsigned, d.Text))
	}
}

// strangers checks the runs that the store has under another tenant than their log, or without a log here.
func (f *fsck) strangers(ctx context.Context, st store.Store, marks *Marks, trusted note.Verifiers) error {
	own, err := f.host.Keys().name()
	if err != nil {
		return err
	}
	runs, err := st.Runs(ctx, store.Filter{})
	if err != nil {
		return err
	}
	for _, run := range runs {
		_, here := f.known[run.ID]
		switch {
		case here && run.Tenant == f.host.RunLogs().tenantOf(run.ID), wal.Locked(f.host.RunDir(run.ID)):
		case here:
			f.found(run.ID, 0, fmt.Errorf("%w: it has the run under tenant %q, too", ErrRunUnsigned, run.Tenant))
		case run.Host == own:
			if _, err := f.stranger(ctx, run.ID, trusted); err != nil {
				return err
			}
		default:
			f.foreign(ctx, marks, run)
		}
	}
	return nil
}

// foreign checks the signer of a run of another host.
func (f *fsck) foreign(ctx context.Context, marks *Marks, run store.Run) {
	c, err := marks.chain(ctx, run.Tenant, run.ID)
	mark := store.Mark{State: store.Unsigned, Text: store.ErrUnsigned.Error()}
	if err == nil && len(c.firsts) > 0 {
		var first *part
		if first, err = marks.manifest(c, 0); err == nil {
			mark = first.mark
		}
	}
	switch {
	case err != nil:
		f.found(run.ID, 0, fmt.Errorf("%w: %w", ErrRunUnsigned, err))
	case mark.Wrong():
		f.found(run.ID, 0, fmt.Errorf("%w: %w", ErrRunUnsigned, &store.MarkError{Mark: mark}))
	case !mark.Good():
		f.checked.Unknown++
	}
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
