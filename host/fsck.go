package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/hostlog"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/audit/witness"
	"github.com/custody-project/custody/ship"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/sqlite"
)

// What Fsck finds beyond what package proof does.
var (
	ErrNotLogged    = errors.New("manifest is not in the host's log")
	ErrNotStored    = errors.New("the store lacks a segment")
	ErrStoreDiffers = errors.New("the store's rows are not what the manifest signs")
	ErrRowAltered   = errors.New("the store is not what the records give")
	ErrLockHeld     = errors.New("the run counts as live, and its lock is held by a process that is not custody")
	ErrRunUnsigned  = errors.New("the store has a run that nothing signed stands behind")
)

// Problem is one thing that Fsck found. Err is one of the errors above, one of package
// hostlog's, or a *verdict.Verdict.
type Problem struct {
	Run     string
	Segment uint64
	Err     error
}

// Error implements error.
func (p Problem) Error() string {
	if p.Run == "" {
		return p.Err.Error()
	}
	return fmt.Sprintf("run %s: %v", p.Run, p.Err)
}

// Unwrap gives what was found.
func (p Problem) Unwrap() error { return p.Err }

// Name is a short and stable name of the problem.
func (p Problem) Name() string {
	var named interface{ Name() string }
	if !errors.Is(p.Err, ErrRunUnsigned) && errors.As(p.Err, &named) {
		return named.Name()
	}
	for name, err := range map[string]error{
		"not-logged": ErrNotLogged, "not-stored": ErrNotStored,
		"store-differs":   ErrStoreDiffers,
		"row-altered":     ErrRowAltered,
		"deletion-forged": ErrDeletionForged, "undeleted": ErrUndeleted,
		"run-unsigned":    ErrRunUnsigned,
		"lock-held":       ErrLockHeld,
		"log-rolled-back": hostlog.ErrRolledBack, "log-forked": hostlog.ErrForked, "log-tiles-altered": hostlog.ErrTilesAltered,
		"log-entry-altered": hostlog.ErrEntriesAltered, "log-part-missing": hostlog.ErrMissing, "log-forged": hostlog.ErrForged,
		"log-entry-twice": hostlog.ErrTwice,
	} {
		if errors.Is(p.Err, err) {
			return name
		}
	}
	return "damaged"
}

// Hint returns what to do about it; "" if the text itself has it.
func (p Problem) Hint() string {
	if h, ok := p.Err.(interface{ Hint() string }); ok {
		return h.Hint()
	}
	if errors.Is(p.Err, ErrUndeleted) {
		return "a copy from before the deletion was put back, or the deletion was killed a moment ago: `custody prune` deletes what is here"
	}
	return ""
}

// Checked is what Fsck looked at.
type Checked struct {
	Runs, Live, Segments, Entries uint64
	Problems                      []Problem
	// Unknown is how many runs of other hosts the store has whose keys are not known here; nothing was checked of them.
	Unknown uint64
	// Unasked is why too few of the witnesses that were to be asked have answered; nil if enough did, or none was to be asked.
	Unasked error
}

// FsckOptions are what Fsck holds this host against beside what is here.
type FsckOptions struct {
	// Since is an earlier checkpoint of the host's log that was kept elsewhere; nil: none.
	Since []byte
	// Witnesses are asked whether they have seen more of the log than is here; nil: none is. Quorum is how many of them have to
	// answer; 0: as many as the policy says.
	Witnesses *witness.Policy
	Quorum    int
}

// Fsck checks this host's logs, the store and the host's log of manifests against each
// other. Runs that go on are left out. An error means that it could not be done.
func (c Checks) Fsck(ctx context.Context, o FsckOptions) (Checked, error) {
	unlock, err := c.settle(ctx)
	if err != nil {
		return Checked{}, err
	}
	defer unlock()
	f := fsck{host: c.host, known: map[string]map[uint64]merkle.Hash{}, logged: map[logged]bool{}}
	runs, err := c.host.RunLogs().all()
	if err != nil {
		return f.checked, err
	}
	trusted, err := c.host.Keys().Trusted()
	if err != nil {
		return f.checked, err
	}
	if err := f.statements(ctx); err != nil {
		return f.checked, err
	}
	w, closeTransport, err := c.host.Shipping().openTransport(ctx)
	if err != nil {
		return f.checked, fmt.Errorf("fsck: store: %w", err)
	}
	for _, run := range runs {
		if wal.Locked(c.host.RunDir(run)) {
			if who, stranger := c.host.RunLogs().lockedBy(run); stranger {
				f.found(run, 0, fmt.Errorf("%w: %s", ErrLockHeld, who))
			}
			f.checked.Live++
			f.known[run] = nil // it is here, and not to be judged
			continue
		}
		if !c.host.RunLogs().begun(run) && !c.host.Retention().IsPruned(run) {
			continue // its process died before it recorded anything, or has just made the directory
		}
		if err := wal.CheckLock(c.host.RunDir(run)); err != nil {
			f.found(run, 0, err)
		}
		if err := f.run(ctx, run, trusted, w); err != nil {
			return f.checked, errors.Join(err, closeTransport())
		}
	}
	err = f.log(ctx, w)
	if err == nil {
		err = f.outside(ctx, o)
	}
	switch {
	case err != nil:
	case c.host.config.localStore():
		err = f.rows(ctx, trusted)
	case c.host.config.Transport == nil || c.host.config.Store != "": // it can be read
		err = f.shown(ctx, trusted)
	}
	return f.checked, errors.Join(err, closeTransport())
}

// settle keeps deletions and erasures away, as readRuns does, once none is half done: the command that began it may have been killed.
func (c Checks) settle(ctx context.Context) (unlock func() error, err error) {
	for try := 0; ; try++ {
		if unlock, err = c.host.Deletions().readRuns(ctx); err != nil {
			return nil, err
		}
		deletions, err := c.host.Deletions().halfDeleted(ctx)
		erasures, erasuresErr := c.host.Erasures().unfinished()
		if err := errors.Join(err, erasuresErr); err != nil {
			return nil, errors.Join(err, unlock())
		}
		if len(deletions)+len(erasures) == 0 || try == settleTries {
			return unlock, nil // fsck reports what could not be finished
		}
		if err := unlock(); err != nil {
			return nil, err
		}
		if err := errors.Join(c.host.Deletions().removeAll(ctx, deletions, lockWait), c.host.Erasures().carryOutAll(ctx, erasures, lockWait)); err != nil {
			c.host.warn(err.Error())
		}
	}
}

// settleTries is how often Fsck finishes deletions and erasures before it begins: others may be cut off meanwhile.
const settleTries = 3

type fsck struct {
	host    *Host
	whole   []string // runs whose record is all here and holds
	pruned  []string // runs whose record holds, parts of it in the store only
	checked Checked
	deleted map[string]statement.Deletion     // statements that hold
	known   map[string]map[uint64]merkle.Hash // digests of the manifests that are here; nil for a live run
	logged  map[logged]bool
	failed  error // the store could not be asked
}

func (f *fsck) found(run string, segment uint64, err error) {
	f.checked.Problems = append(f.checked.Problems, Problem{run, segment, err})
}

// run checks one run: its record, and its rows in the store.
func (f *fsck) run(ctx context.Context, run string, trusted note.Verifiers, w transport) error {
	f.checked.Runs++
	held, err := f.host.Retention().held(ctx, w, run)
	unreadable := errors.Is(err, store.ErrMalformed) || errors.Is(err, store.ErrAmbiguous) // it may have the run under two tenants
	switch {
	case unreadable:
		f.found(run, 0, fmt.Errorf("%w: %w", ErrStoreDiffers, err))
	case err != nil:
		return err
	}
	f.known[run] = map[uint64]merkle.Hash{}
	follow := follower{host: f.host, run: run}
	err = follow.eachSealed(ctx, func(m statement.Manifest, signed []byte, _ string) error {
		f.checked.Segments++
		f.known[run][m.Segment] = statement.Digest(signed)
		if !unreadable {
			f.segment(run, m, signed, held)
		}
		return nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		f.found(run, 0, err)
		return f.verify(ctx, run, trusted)
	}
	before := len(f.checked.Problems)
	err = f.verify(ctx, run, trusted)
	if len(f.checked.Problems) == before {
		if f.host.Retention().IsPruned(run) {
			f.pruned = append(f.pruned, run)
		} else {
			f.whole = append(f.whole, run)
		}
	}
	return err
}

// rows compares every row of SQLite with the records, and finds runs that were never recorded. Where retention removed
// segments, or there is no log here, the records are the store's own, which are as signed: its columns are compared
// with them.
func (f *fsck) rows(ctx context.Context, trusted note.Verifiers) error {
	found, others, err := sqlite.Check(ctx, f.host.storePath(), f.whole, f.host.Shipping().segments(ctx, f.whole))
	if err != nil {
		return err
	}
	for _, d := range found {
		f.found(d.Run, 0, fmt.Errorf("%w: %s", ErrRowAltered, d.Text))
	}
	proven := f.pruned
	st, err := sqlite.OpenReader(ctx, f.host.storePath())
	if err != nil {
		return err
	}
	undeleted, err := st.Has(ctx, slices.Sorted(maps.Keys(f.deleted))...)
	if err := errors.Join(err, st.Close()); err != nil {
		return err
	}
	for _, run := range undeleted {
		f.found(run, 0, ErrUndeleted)
	}
	for _, run := range others {
		if _, deleted := f.deleted[run]; deleted {
			continue // its rows in the feed stay
		}
		if _, here := f.known[run]; here || wal.Locked(f.host.RunDir(run)) {
			continue // it began since, goes on, was pruned, or its record does not hold, which is reported above
		}
		holds, err := f.stranger(ctx, run, trusted)
		if err != nil {
			return err
		}
		if holds {
			proven = append(proven, run)
		}
	}
	if len(proven) == 0 {
		return nil
	}
	if found, _, err = sqlite.Check(ctx, f.host.storePath(), proven, f.host.Shipping().storedSegments(ctx, proven)); err != nil {
		return err
	}
	for _, d := range found {
		if slices.Contains(proven, d.Run) { // what is about the whole database was found before
			f.found(d.Run, 0, fmt.Errorf("%w: %s", ErrRowAltered, d.Text))
		}
	}
	return nil
}

// stranger checks a run that only the store has: its rows have to be what a key that is trusted here signed.
func (f *fsck) stranger(ctx context.Context, run string, trusted note.Verifiers) (holds bool, err error) {
	e, closeEvidence, err := f.host.Proofs().OfRun(ctx, "", run)
	if err == nil {
		var report proof.Report
		if report, err = proof.Verify(ctx, e, proof.Trust{Keys: trusted, Unlogged: true}); err == nil {
			err = SameRun(run, report)
		}
		err = errors.Join(err, closeEvidence())
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		f.found(run, 0, fmt.Errorf("%w: %w", ErrRunUnsigned, f.host.Checks().Doubt(ctx, "", run, err)))
	}
	return err == nil, nil
}

// segment compares a manifest with what the store holds.
func (f *fsck) segment(run string, m statement.Manifest, signed []byte, held map[uint64]ship.Held) {
	one, there := held[m.Segment]
	switch {
	case !there:
		f.found(run, m.Segment, fmt.Errorf("%w: segment %d, seqs %d to %d", ErrNotStored, m.Segment, m.First, m.Last))
	case one.Manifest != [32]byte(statement.Digest(signed)):
		f.found(run, m.Segment, fmt.Errorf("%w: another manifest %d is there", ErrStoreDiffers, m.Segment))
	case m.Count > 0 && one.Root != [32]byte(m.Root):
		f.found(run, m.Segment, fmt.Errorf("%w: segment %d, seqs %d to %d", ErrStoreDiffers, m.Segment, m.First, m.Last))
	}
}

func (f *fsck) verify(ctx context.Context, run string, trusted note.Verifiers) error {
	e, closeEvidence, err := f.host.Proofs().OfRun(ctx, "", run)
	if err != nil {
		f.found(run, 0, err)
		return nil
	}
	report, err := proof.Verify(ctx, e, proof.Trust{Keys: trusted})
	if err == nil {
		if err = SameRun(run, report); err != nil {
			err = fmt.Errorf("%w: %w", ErrRunUnsigned, err)
		}
	}
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), closeEvidence())
	}
	if err != nil {
		f.found(run, 0, err)
	}
	return closeEvidence()
}

// log checks the host's log in itself, and that all it names is somewhere.
func (f *fsck) log(ctx context.Context, w transport) error {
	r, err := f.host.ManifestLog().Reader()
	if errors.Is(err, fs.ErrNotExist) && f.checked.Segments == 0 {
		return nil
	}
	if err != nil {
		f.found("", 0, err)
		return nil
	}
	if err := r.Check(ctx); err != nil {
		if errors.Is(err, fs.ErrNotExist) && f.checked.Segments == 0 {
			return nil // nothing was recorded yet
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f.found("", 0, err)
	}
	twice, err := r.Twice(ctx)
	for _, conflict := range twice {
		f.found(conflict.Leaf.Run, conflict.Leaf.N, conflict)
	}
	if err != nil {
		f.found("", 0, err)
		return ctx.Err()
	}
	checkpoint, err := f.host.ManifestLog().checkpoint(ctx, r)
	if err != nil {
		f.found("", 0, err)
		return nil
	}
	absent, err := proof.Absent(f.counted(r.Entries(ctx, 0, checkpoint.Size)), func(run string, n uint64, digest merkle.Hash) bool {
		return f.has(ctx, w, run, n, digest)
	})
	for _, finding := range absent {
		f.found("", 0, finding)
	}
	if err != nil {
		f.found("", 0, err)
		return ctx.Err()
	}
	for run, segments := range f.known {
		for n := range segments {
			if !f.logged[logged{run, n}] {
				f.found(run, n, fmt.Errorf("%w: segment %d", ErrNotLogged, n))
			}
		}
	}
	return errors.Join(f.failed, ctx.Err())
}

// logged names a manifest that the host's log has.
type logged struct {
	run     string
	segment uint64
}

// counted takes note of the entries that pass.
func (f *fsck) counted(entries iter.Seq2[[]byte, error]) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for entry, err := range entries {
			if leaf, bad := statement.ParseLeaf(entry); err == nil && bad == nil && leaf.Of == statement.OfManifest {
				f.logged[logged{leaf.Run, leaf.N}] = true
			}
			f.checked.Entries++
			if !yield(entry, err) {
				return
			}
		}
	}
}

// has reports whether a manifest is here, or in the store. Runs that go on are not judged.
func (f *fsck) has(ctx context.Context, w transport, run string, n uint64, digest merkle.Hash) bool {
	here, known := f.known[run]
	if known && here == nil {
		return true
	}
	if at, there := here[n]; there && at == digest {
		return true
	}
	held, err := f.host.Retention().held(ctx, w, run)
	if errors.Is(err, store.ErrMalformed) || errors.Is(err, store.ErrAmbiguous) {
		return false
	}
	if err != nil {
		f.failed = err
		return true
	}
	one, there := held[n]
	if there && one.Manifest == [32]byte(digest) {
		return true
	}
	d, deleted := f.deleted[run]
	return deleted && n < d.Segments && (n+1 < d.Segments || d.Manifest == digest)
}
