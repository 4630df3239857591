package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/sqlite"
)

// Errors about signed deletions.
var (
	ErrDeletionForged = errors.New("the statement of the run's deletion was not made by this host")
	ErrUndeleted      = errors.New("the run was deleted, and parts of it exist again")
)

// file returns the path of the signed statement of a run's deletion.
func (d Deletions) file(run string) string {
	return d.host.path("deleted", run+statement.DeletionSuffix)
}

// stated reports whether a run has a statement of its deletion. It does not check the statement.
func (d Deletions) stated(run string) bool {
	_, err := os.Stat(d.file(run))
	return err == nil && isRun(run)
}

// all names the runs that have statements of their deletion, oldest first.
func (d Deletions) all() ([]string, error) {
	entries, err := os.ReadDir(d.host.path("deleted"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var runs []string
	for _, e := range entries {
		if run, ok := strings.CutSuffix(e.Name(), statement.DeletionSuffix); ok && isRun(run) {
			runs = append(runs, run)
		}
	}
	slices.SortFunc(runs, func(a, b string) int { return newer(b, a) })
	return runs, err
}

// All returns the deletions that this host has signed, oldest first.
func (ds Deletions) All(ctx context.Context) ([]statement.Deletion, error) {
	runs, err := ds.all()
	if err != nil {
		return nil, err
	}
	var all []statement.Deletion
	for _, run := range runs {
		d, err := ds.of(ctx, run)
		if err != nil {
			return all, err
		}
		all = append(all, d)
	}
	return all, nil
}

// of reads a statement. It must be signed by this host and be in its log. The error is fs.ErrNotExist if there
// is none.
func (ds Deletions) of(ctx context.Context, run string) (statement.Deletion, error) {
	d, signed, err := ds.open(run)
	if err != nil {
		return d, err
	}
	r, err := ds.host.ManifestLog().Reader()
	if err != nil {
		return d, fmt.Errorf("host log: %w", err)
	}
	manifest, deletion := d.Leaves(signed)
	for _, entry := range [][]byte{manifest, deletion} {
		if _, err := r.Index(ctx, entry); errors.Is(err, fs.ErrNotExist) {
			return d, fmt.Errorf("%w: %s: it is not in the host's log", ErrDeletionForged, ds.file(run))
		} else if err != nil {
			return d, fmt.Errorf("host log: %w", err)
		}
	}
	return d, nil
}

// open reads a statement that may not be in the host's log yet.
func (ds Deletions) open(run string) (d statement.Deletion, signed []byte, err error) {
	path := ds.file(run)
	if signed, err = regular.ReadFile(path); err != nil {
		return d, nil, err
	}
	trusted, err := ds.host.Keys().Trusted()
	if err != nil {
		return d, nil, err
	}
	n, err := note.Open(signed, trusted)
	if err == nil {
		d, err = statement.ParseDeletion(n.Text)
	}
	if err == nil && d.Run != run {
		err = fmt.Errorf("it is about run %s", d.Run)
	}
	if err != nil {
		return d, nil, fmt.Errorf("%w: %s: %w", ErrDeletionForged, path, err)
	}
	return d, signed, nil
}

// notFound returns the error for a name that matches no run: a *store.DeletedError if retention deleted the run
// and it was the tenant's. An empty tenant matches any, as in store.Store's Run.
func (ds Deletions) notFound(ctx context.Context, tenant, name string) error {
	missing := fmt.Errorf("%w: %.140q", store.ErrNotFound, name)
	runs, err := ds.all()
	if err != nil || len(runs) == 0 || name == "" || name == store.Last {
		return missing
	}
	if !slices.Contains(runs, name) {
		runs = slices.DeleteFunc(runs, func(run string) bool { return !strings.HasPrefix(run, name) })
		if len(runs) != 1 {
			return missing
		}
		name = runs[0]
	}
	d, err := ds.of(ctx, name)
	if err != nil || !store.OfTenant(tenant, d.Tenant) {
		return missing // Fsck reports statements that do not hold
	}
	return &store.DeletedError{Run: d.Run, Rule: d.Rule, Time: d.Time}
}

// remembering is the host's store, except that its Run reports deleted runs as deleted.
type remembering struct {
	*sqlite.Store
	host *Host
}

// Run implements store.Store.
func (s remembering) Run(ctx context.Context, tenant, name string) (store.Run, error) {
	run, err := s.Store.Run(ctx, tenant, name)
	if errors.Is(err, store.ErrNotFound) {
		err = s.host.Deletions().notFound(ctx, tenant, name)
	}
	return run, err
}

// statements checks the signed deletions, and that no part of the deleted runs exists.
func (f *fsck) statements(ctx context.Context) error {
	runs, err := f.host.Deletions().all()
	if err != nil {
		return err
	}
	f.deleted = map[string]statement.Deletion{}
	for _, run := range runs {
		d, err := f.host.Deletions().of(ctx, run)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			f.found(run, 0, err)
			continue
		}
		f.deleted[run] = d
		if _, err := os.Lstat(filepath.Join(f.host.RunDir(run))); err == nil {
			f.found(run, 0, ErrUndeleted)
		}
	}
	return nil
}
