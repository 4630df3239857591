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

// Findings of Fsck in addition to those of package proof.
var (
	ErrNotLogged    = errors.New("manifest is not in the host's log")
	ErrNotStored    = errors.New("the store lacks a segment")
	ErrStoreDiffers = errors.New("the store's rows differ from the signed manifest")
	ErrRowAltered   = errors.New("the store differs from the records")
	ErrLockHeld     = errors.New("the run counts as live, but a process other than custody holds its lock")
	ErrRunUnsigned  = errors.New("the store has a run without a signed record")
)

// Problem is one finding of Fsck. Err is one of the errors above, one of package
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

// Unwrap returns the finding.
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

// Hint returns the remedy; "" if the text contains it.
func (p Problem) Hint() string {
	if h, ok := p.Err.(interface{ Hint() string }); ok {
		return h.Hint()
	}
	if errors.Is(p.Err, ErrUndeleted) {
		return "someone restored a copy from before the deletion, or the deletion was killed a moment ago: `custody prune` deletes the remaining parts"
	}
	return ""
}

// Checked is the result of Fsck.
type Checked struct {
	Runs, Live, Segments, Entries uint64
	Projects                      uint64 // versions of registered projects
	Problems                      []Problem
	// Unknown is the number of runs of hosts whose keys are not known here. Fsck did not check them.
	Unknown uint64
	// Unasked is the reason why too few witnesses answered; nil if enough did, or if none had to be asked.
	Unasked error
}

// FsckOptions are further sources that Fsck compares this host with.
type FsckOptions struct {
	// Since is an earlier checkpoint of the host's log, from a copy elsewhere; nil: none.
	Since []byte
	// Witnesses are asked whether they have seen more of the log than this host has; nil: none is asked. Quorum is how many of them
	// must answer; 0: as many as the policy requires.
	Witnesses *witness.Policy
	Quorum    int
}

// Fsck compares this host's logs, the store and the host's log of manifests with each
// other. It leaves out live runs. An error means that the check could not be completed.
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
			f.known[run] = nil // the run has a log here, but is not checked
			continue
		}
		if !c.host.RunLogs().begun(run) && !c.host.Retention().IsPruned(run) {
			continue // its process died before it recorded anything, or has just created the directory
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
		err = f.projects(ctx)
	}
	if err == nil {
		err = f.outside(ctx, o)
	}
	switch {
	case err != nil:
	case c.host.config.localStore():
		err = f.rows(ctx, trusted)
	case c.host.config.Transport == nil || c.host.config.Store != "": // the store can be read
		err = f.shown(ctx, trusted)
	}
	return f.checked, errors.Join(err, closeTransport())
}

// settle completes interrupted deletions and erasures, whose commands may have been killed. Then it keeps new ones out, as readRuns does.
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
			return unlock, nil // fsck reports what is still incomplete
		}
		if err := unlock(); err != nil {
			return nil, err
		}
		if err := errors.Join(c.host.Deletions().removeAll(ctx, deletions, lockWait), c.host.Erasures().carryOutAll(ctx, erasures, lockWait)); err != nil {
			c.host.warn(err.Error())
		}
	}
}

// settleTries bounds how often Fsck completes deletions and erasures before it begins: more may be interrupted meanwhile.
const settleTries = 3

type fsck struct {
	host    *Host
	whole   []string // runs whose record is completely here and holds
	pruned  []string // runs whose record holds, with parts in the store only
	checked Checked
	deleted map[string]statement.Deletion     // statements that hold
	known   map[string]map[uint64]merkle.Hash // digests of the manifests that are here; nil for a live run
	logged  map[logged]bool
	failed  error // why the store could not be read
}

func (f *fsck) found(run string, segment uint64, err error) {
	f.checked.Problems = append(f.checked.Problems, Problem{run, segment, err})
}

// run checks one run: its record, and its rows in the store.
func (f *fsck) run(ctx context.Context, run string, trusted note.Verifiers, w transport) error {
	f.checked.Runs++
	held, err := f.host.Retention().held(ctx, w, run)
	unreadable := errors.Is(err, store.ErrMalformed) || errors.Is(err, store.ErrAmbiguous) // the store may have the run under two tenants
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

// rows compares every row of SQLite with the records, and finds runs that were never recorded. If retention removed
// segments of a run, or its log is not here, the records come from the store, after their signatures were verified; this compares
// the store's columns with them.
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
			continue // its rows in the feed remain
		}
		if _, here := f.known[run]; here || wal.Locked(f.host.RunDir(run)) {
			continue // it is new, live or pruned, or its record does not hold, which was reported above
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
		if slices.Contains(proven, d.Run) { // differences of the whole database were reported before
			f.found(d.Run, 0, fmt.Errorf("%w: %s", ErrRowAltered, d.Text))
		}
	}
	return nil
}

// stranger checks a run that only the store has: a key that is trusted here must have signed its rows.
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

// segment compares a manifest with the store's.
func (f *fsck) segment(run string, m statement.Manifest, signed []byte, held map[uint64]ship.Held) {
	one, there := held[m.Segment]
	switch {
	case !there:
		f.found(run, m.Segment, fmt.Errorf("%w: segment %d, seqs %d to %d", ErrNotStored, m.Segment, m.First, m.Last))
	case one.Manifest != [32]byte(statement.Digest(signed)):
		f.found(run, m.Segment, fmt.Errorf("%w: it has another manifest %d", ErrStoreDiffers, m.Segment))
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

// log checks the host's log itself, and that every manifest in it exists in a log or in the store.
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
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f.found("", 0, err)
	}
	if _, err := r.Checkpoint(ctx); errors.Is(err, fs.ErrNotExist) && f.checked.Segments == 0 {
		return nil // nothing was recorded yet
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

// logged names a manifest that is in the host's log.
type logged struct {
	run     string
	segment uint64
}

// counted yields the entries, and notes which manifests they name.
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

// has reports whether a manifest is here, or in the store. It does not check live runs.
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
