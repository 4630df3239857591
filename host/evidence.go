package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/store"
)

// OfRun opens a run's record for verification, with this host's log. It rebuilds segments that retention removed, and whole
// runs of other hosts, from the store. tenant limits it to a run of that tenant, as in store.Store's Run.
// The caller calls close, which removes the rebuilt files.
func (p Proofs) OfRun(ctx context.Context, tenant, run string) (e *proof.Evidence, close func() error, err error) {
	dir, remove, err := p.recordDir(ctx, tenant, run)
	if err != nil {
		return nil, nil, err
	}
	if e, err = p.open(ctx, dir, run, p.mine(tenant, run, dir)); err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	e.Live = e.Live || p.host.RunLogs().HasOf(tenant, run) && p.host.RunLogs().Live(run) // such as a run whose segments an earlier version pruned while it was live
	e.OnClose(remove)
	return e, e.Close, nil
}

// open opens a directory with a run's files. For a run of this host it adds the host's key and log.
func (p Proofs) open(ctx context.Context, dir, run string, mine bool) (*proof.Evidence, error) {
	e, err := proof.OpenDir(dir)
	if err != nil || !mine {
		return e, err
	}
	if e.Rotations, err = p.host.Keys().rotations(ctx); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.Log, e.Past = p.log(run)
	if key, _, err := p.host.Keys().of(dir); err == nil { // for the proof of a record
		e.HostKey = key
	}
	if e.Stamp, err = p.stampOf(ctx, e.Log); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// stampOf returns the time stamp over the log's last checkpoint, nil if there is none.
func (p Proofs) stampOf(ctx context.Context, log proof.Log) ([]byte, error) {
	if log == nil {
		return nil, nil
	}
	checkpoint, err := log.Checkpoint(ctx)
	if err != nil {
		return nil, nil // Verify reports the error
	}
	return p.host.ManifestLog().stampFileOf(checkpoint)
}

// log returns the host's log and its earlier checkpoints, to prove a run; nil if the log is empty.
func (p Proofs) log(run string) (proof.Log, proof.Past) {
	r, err := p.host.ManifestLog().Reader()
	if err != nil {
		return nil, nil
	}
	return r, p.host.ManifestLog().pastOf(run, r)
}

// mine reports whether this host made the run whose files are in dir. The runs of other hosts are not in this host's log,
// and are signed by other keys.
func (p Proofs) mine(tenant, run, dir string) bool {
	_, signed := p.host.RunLogs().firstManifest(dir)
	return signed || p.host.RunLogs().HasOf(tenant, run)
}

// recordDir returns a directory with all of the run's files. remove removes it if it is temporary; until
// then no deletion removes it.
func (p Proofs) recordDir(ctx context.Context, tenant, run string) (dir string, remove func() error, err error) {
	keep, err := p.host.Deletions().readRuns(ctx)
	if err != nil {
		return "", nil, err
	}
	if p.host.RunLogs().HasOf(tenant, run) && !p.host.Retention().IsPruned(run) {
		return p.host.RunDir(run), keep, nil
	}
	temp, err := os.MkdirTemp(p.host.Dir, rebuiltPrefix)
	if err != nil {
		return "", nil, errors.Join(err, keep())
	}
	remove = func() error { return errors.Join(os.RemoveAll(temp), keep()) }
	dir = filepath.Join(temp, rebuiltDir)
	if err := p.rebuildRun(ctx, tenant, run, dir); err != nil {
		return "", nil, errors.Join(fmt.Errorf("run %s: restore its record from the store: %w", run, err), remove())
	}
	return dir, remove, nil
}

// rebuiltPrefix begins the names of the directories in which records are rebuilt. Their makers hold the shared lock of runs.
const rebuiltPrefix = "rebuilt-"

// rebuiltDir is the name of the directory for a rebuilt record. It is fixed, because the store supplies the name of the run.
const rebuiltDir = "record"

// rebuildRun writes a run's files from the store's rows and manifests.
func (p Proofs) rebuildRun(ctx context.Context, tenant, run, dir string) error {
	st, err := p.host.Store(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	r, err := st.Run(ctx, tenant, run)
	if err != nil {
		return err
	}
	manifests, err := st.Manifests(ctx, r.Tenant, r.ID)
	if err != nil {
		return err
	}
	if len(manifests) == 0 { // the store gets a segment's rows and its manifest together
		return store.ErrUnsigned
	}
	signed := make([][]byte, len(manifests))
	for i, m := range manifests {
		if signed[i], err = m.Bytes, signedFor(r.ID, m.Bytes); err != nil {
			return err
		}
	}
	if err := proof.Rebuild(ctx, dir, signed, rows(ctx, st, r)); err != nil {
		return err
	}
	return p.copyStatements(r, dir)
}

// signedFor checks that a manifest, which is not verified yet, belongs to the run for which the store has it.
func signedFor(run string, signed []byte) error {
	seg, err := statement.NewSealer(nil, statement.Facts{}).Parse(signed)
	if err != nil || seg.Run == run {
		return nil // verification reports a manifest that cannot be read
	}
	return &store.MarkError{Mark: fails("it contains the record of another run, %s", seg.Run)}
}

func rows(ctx context.Context, st store.Store, r store.Run) iter.Seq2[proof.Row, error] {
	return func(yield func(proof.Row, error) bool) {
		for row, err := range st.Records(ctx, store.Query{Tenant: r.Tenant, Run: r.ID}) {
			if !yield(proof.Row(row.Frame()), err) || err != nil {
				return
			}
		}
	}
}

// copyStatements copies the signed erasures of a run of this host. No store has them.
func (p Proofs) copyStatements(run store.Run, to string) error {
	if !p.host.RunLogs().HasOf(cmp.Or(run.Tenant, store.NoTenant), run.ID) {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(p.host.RunDir(run.ID), "*"+statement.ErasureSuffix))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := regular.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, filepath.Base(file)), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// BundleOptions sets what a bundle contains besides a run's whole record.
type BundleOptions struct {
	// Since is an earlier checkpoint: the bundle proves that the log only grew since. Nil: it does not.
	Since []byte
	// Select restricts the bundle to a part of the record; nil: the whole record.
	Select *proof.Selection
	// Attachments are further files, and About the other runs that they refer to.
	Attachments []statement.Attachment
	About       []statement.Subject
	// By is the user who requested the bundle; empty: this host.
	By string
}

// Bundle writes everything that an auditor needs to verify a run; tenant is the run's, as in OfRun.
func (p Proofs) Bundle(ctx context.Context, w io.Writer, tenant, run string, o BundleOptions) error {
	dir, remove, err := p.recordDir(ctx, tenant, run)
	if err != nil {
		return err
	}
	all, err := p.bundleOptions(ctx, run, dir, p.mine(tenant, run, dir), o)
	if err != nil {
		return errors.Join(err, remove())
	}
	release := func() error { return nil }
	if o.Select == nil { // the ancestors of a selection would show what it withholds
		all.Ancestors, release, err = p.lineage(ctx, tenant, run, dir, o)
	}
	if err == nil {
		err = proof.WriteBundle(ctx, w, dir, all)
	}
	return errors.Join(err, release(), remove())
}

func (p Proofs) bundleOptions(ctx context.Context, run, dir string, mine bool, o BundleOptions) (all proof.BundleOptions, err error) {
	key, err := p.host.Keys().Signing()
	if err != nil {
		return all, err
	}
	all = proof.BundleOptions{HostKey: key.Public, Since: o.Since, Select: o.Select, Attachments: o.Attachments, About: o.About,
		Signer: key, By: cmp.Or(o.By, key.Name()), Time: time.Now()}
	if !mine {
		err = p.foreignOptions(dir, key.Public, &all)
		return all, err
	}
	if all.HostKey, _, err = p.host.Keys().of(dir); err != nil {
		return all, err
	}
	if all.Hosts, err = p.ownStatements(key.Public); err != nil {
		return all, err
	}
	if all.Rotations, err = p.host.Keys().rotations(ctx); err != nil {
		return all, err
	}
	all.Log, all.Past = p.log(run)
	all.Stamp, err = p.stampOf(ctx, all.Log)
	return all, err
}
