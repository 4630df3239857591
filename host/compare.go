package host

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

// Verify verifies a run's record, and checks that st has the same record as the log. An empty tenant matches any tenant.
func (c Checks) Verify(ctx context.Context, st RunReader, tenant, run string, t proof.Trust) (proof.Report, error) {
	pruned := c.host.Retention().IsPruned(run)
	report, err := c.verifyOnce(ctx, st, tenant, run, t)
	if errors.Is(err, verdict.ErrSegmentMissing) && !pruned && c.host.Retention().IsPruned(run) { // retention removed it meanwhile
		return c.verifyOnce(ctx, st, tenant, run, t)
	}
	var d *replay.Differences
	if !errors.As(err, &d) {
		return report, err
	}
	if any, finishErr := c.host.Erasures().Finish(ctx, run); !any || finishErr != nil { // an interrupted erasure is in the log and not in the store
		return report, errors.Join(err, finishErr)
	}
	return c.verifyOnce(ctx, st, tenant, run, t)
}

// VerifyTrusted is Verify with the keys that this host trusts.
func (c Checks) VerifyTrusted(ctx context.Context, st RunReader, run store.Run) (proof.Report, error) {
	keys, err := c.host.Keys().Trusted()
	if err != nil {
		return proof.Report{}, err
	}
	return c.Verify(ctx, st, store.TenantFilter(run.Tenant), run.ID, proof.Trust{Keys: keys})
}

func (c Checks) verifyOnce(ctx context.Context, st RunReader, tenant, run string, t proof.Trust) (proof.Report, error) {
	e, closeEvidence, err := c.host.Proofs().OfRun(ctx, tenant, run)
	if err != nil {
		return proof.Report{}, c.Doubt(ctx, tenant, run, err)
	}
	e.Ancestors = c.host.Proofs().ancestors(tenant)
	report, err := proof.Verify(ctx, e, t)
	if err == nil {
		err = SameRun(run, report)
	}
	err = c.Doubt(ctx, tenant, run, err)
	if err == nil && c.host.RunLogs().HasOf(tenant, run) && !c.host.Retention().IsPruned(run) {
		err = c.compareStore(ctx, st, tenant, run)
	}
	return report, errors.Join(err, closeEvidence())
}

// RunReader is the part of a store that a comparison with the log needs.
type RunReader interface {
	Run(ctx context.Context, tenant, name string) (store.Run, error)
	Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error]
}

// compareStore checks that the store has the same record as the log. If the store
// only lags behind, it ships the rest first: the run may have ended just now.
func (c Checks) compareStore(ctx context.Context, st RunReader, tenant, run string) error {
	err := c.compare(ctx, st, tenant, run)
	if !lags(err) {
		return err
	}
	if err := c.host.Tidy(ctx, c.host.warn); err != nil {
		return err
	}
	err = c.compare(ctx, st, tenant, run)
	if lags(err) && !c.host.RunLogs().HasWhole(run) {
		return nil // the run's process ships the rest
	}
	return err
}

func (c Checks) compare(ctx context.Context, st RunReader, tenant, id string) error {
	const finding = "the log holds, but the store has something else: %w"
	run, err := st.Run(ctx, tenant, id)
	if errors.Is(err, store.ErrNotFound) { // the log has it
		run, err = store.NewRun(id), nil
	}
	if err != nil {
		return err
	}
	if _, err := replay.CompareStore(ctx, st.Records(ctx, store.Query{Tenant: run.Tenant, Run: id}), c.host.RunLogs().Frames(id)); err != nil {
		return fmt.Errorf(finding, err)
	}
	if err := replay.CompareSummary(run, c.host.RunLogs().Frames(id)); err != nil {
		return fmt.Errorf(finding, err)
	}
	return nil
}

// lags reports whether the store lacks only the end of the run.
func lags(err error) bool {
	var d *replay.Differences
	return errors.As(err, &d) && d.Total == d.Behind
}
