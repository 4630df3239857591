package host

import (
	"context"
	"errors"
	"io/fs"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/store"
)

// maxAncestors is the most ancestors that a bundle contains.
const maxAncestors = 1000

// ancestors returns the function with which a verification opens the records of a run's ancestors. tenant limits it to runs
// of that tenant, as in OfRun.
func (p Proofs) ancestors(tenant string) func(context.Context, string) (*proof.Evidence, *statement.Deletion, error) {
	return func(ctx context.Context, run string) (*proof.Evidence, *statement.Deletion, error) {
		if !isRun(run) {
			return nil, nil, nil
		}
		e, _, err := p.OfRun(ctx, tenant, run) // the caller closes it
		if err == nil {
			return e, nil, nil
		}
		return p.absent(ctx, tenant, run, err)
	}
}

// absent returns the statement of the deletion of a run whose record cannot be opened because of err, if the host has deleted
// it, and no error if it is not here.
func (p Proofs) absent(ctx context.Context, tenant, run string, err error) (*proof.Evidence, *statement.Deletion, error) {
	d, stated := p.host.Deletions().of(ctx, run)
	deleted := new(store.DeletedError)
	switch {
	case stated == nil && store.OfTenant(tenant, d.Tenant):
		return nil, &d, nil
	case errors.Is(err, store.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.As(err, &deleted):
		return nil, nil, nil
	}
	return nil, nil, err
}

// lineage returns the ancestors of the run in dir, as far as their records are here, with what their bundles contain.
// The caller calls release when it has read them.
func (p Proofs) lineage(ctx context.Context, tenant, run, dir string, o BundleOptions) (all []proof.BundledRun, release func() error, err error) {
	var releases []func() error
	release = func() error {
		var errs []error
		for _, r := range releases {
			errs = append(errs, r())
		}
		return errors.Join(errs...)
	}
	seen, logged := map[string]bool{run: true}, p.mine(tenant, run, dir)
	for len(all) < maxAncestors {
		parent, err := proof.StatedParent(dir)
		if err != nil || parent == nil || seen[parent.Run] || !isRun(parent.Run) { // verification reports a cycle
			return all, release, err
		}
		seen[parent.Run] = true
		var done func() error
		if dir, done, err = p.recordDir(ctx, tenant, parent.Run); err != nil {
			_, _, err = p.absent(ctx, tenant, parent.Run, err)
			return all, release, err
		}
		releases = append(releases, done)
		mine := p.mine(tenant, parent.Run, dir)
		if logged && !mine { // this host has no proofs of it, without which the bundle would not verify
			return all, release, nil
		}
		of, err := p.bundleOptions(ctx, parent.Run, dir, mine, BundleOptions{Since: o.Since, By: o.By})
		if err != nil {
			return all, release, err
		}
		all = append(all, proof.BundledRun{Dir: dir, Options: of})
	}
	return all, release, nil
}
