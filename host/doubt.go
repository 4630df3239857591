package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/store"
)

// Doubt replaces err, the failed check of a run that has no log here, with a more precise error: a *store.MarkError
// that states what is wrong with the store's copy, by the rules of Marks. If nothing is wrong there, or Marks cannot
// decide, it returns err.
func (c Checks) Doubt(ctx context.Context, tenant, run string, err error) error {
	if err == nil || c.host.RunLogs().Has(run) || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrUnsigned) {
		return err
	}
	st, failed := c.host.Store(ctx)
	if failed != nil {
		return err
	}
	defer st.Close()
	r, failed := st.Run(ctx, tenant, run)
	if failed != nil {
		return err
	}
	marks, failed := c.Marks(st)
	if failed != nil {
		return err
	}
	if mark := marks.first(ctx, st, r); mark.Wrong() {
		return &store.MarkError{Mark: mark}
	}
	return err
}

// first returns the first mark of a run's manifests and records that is Wrong, or a mark that holds.
func (m *Marks) first(ctx context.Context, st store.Store, run store.Run) store.Mark {
	c, err := m.chain(ctx, run.Tenant, run.ID)
	if err != nil {
		return m.cannot(err)
	}
	for i := range c.firsts {
		p, err := m.part(ctx, c, i, run.Tenant)
		if err != nil {
			return m.cannot(err)
		}
		if p.mark.Wrong() {
			return p.mark
		}
	}
	for row, err := range st.Records(ctx, store.Query{Tenant: run.Tenant, Run: run.ID}) {
		if err != nil {
			return m.cannot(err)
		}
		if mark := m.Row(ctx, row); mark.Wrong() {
			mark.Text = fmt.Sprintf("record %d: %s", row.Seq, mark.Text)
			return mark
		}
	}
	return store.Mark{State: store.Holds}
}

// SameRun checks that a report is about the requested run: a store or a directory can contain the genuine record of
// one run under the name of another.
func SameRun(run string, r proof.Report) error {
	if r.Run == run {
		return nil
	}
	return &store.MarkError{Mark: fails("it contains the record of another run, %s", r.Run)}
}
