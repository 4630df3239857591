package proof

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// ancestorSuffix ends the names of the bundles of ancestors in a bundle: number 1 is of the parent.
const ancestorSuffix = ".ancestor"

// Ancestor is what Verify established about an ancestor of a run.
type Ancestor struct {
	audit.Parent // as its child states it
	State        AncestorState
	Records      uint64
	Erased       uint64              // how many of Records were erased
	Deletion     *statement.Deletion // of the state AncestorDeleted
}

// AncestorState is the result for an ancestor. The lineage ends with each except AncestorVerified.
type AncestorState string

// The results for ancestors.
const (
	AncestorVerified AncestorState = "verified"
	AncestorMissing  AncestorState = "missing" // its record is not in the evidence
	AncestorDeleted  AncestorState = "deleted" // the host has deleted its whole record, and states so
	AncestorDoubtful AncestorState = "doubtful"
	AncestorBeyond   AncestorState = "beyond" // it is more than 1,000 generations older
)

// lineage follows the parents of a run, from the parent to the root ancestor:
//
//	run --parent--> run --parent--> run (from a template)
//
// Each link has the digest of the signed last manifest of the parent, which has the digest of the one before, and so on. So
// the signature of the child's record covers all of its ancestors.
type lineage struct {
	v    *verifier // of the run itself
	flat bool      // the run is an ancestor: another lineage follows its parent
}

func (l *lineage) check(ctx context.Context) error {
	r := &l.v.report
	seen := map[string]bool{r.Run: true}
	next, found := r.Parent, uint64(0)
	for next != nil && !l.flat && l.looks() {
		a := Ancestor{Parent: *next}
		if seen[a.Run] {
			return verdict.Broken(verdict.ErrCycle, 0, "", "run %.140s", a.Run)
		}
		seen[a.Run] = true
		older, err := l.ancestor(ctx, &a, found+1)
		if err != nil {
			return err
		}
		if a.State == AncestorVerified || a.State == AncestorDoubtful {
			found++
		}
		r.Lineage = append(r.Lineage, a)
		if a.State == AncestorDoubtful && older == nil {
			return nil // its own parent is unknown
		}
		next = older
	}
	return l.strays(found)
}

// looks reports whether the evidence can have ancestors.
func (l *lineage) looks() bool { return l.v.evidence.bundle || l.v.evidence.Ancestors != nil }

// ancestor verifies one ancestor, of generation n, and returns its parent.
func (l *lineage) ancestor(ctx context.Context, a *Ancestor, n uint64) (older *audit.Parent, err error) {
	if n > maxAncestors {
		a.State = AncestorBeyond
		return nil, nil
	}
	e, deletion, err := l.open(ctx, n, a.Run)
	switch {
	case err != nil:
		return nil, err
	case deletion != nil && (deletion.Run != a.Run || deletion.Manifest.String() != a.Manifest):
		return nil, verdict.Broken(verdict.ErrParent, 0, "", "run %.140s was deleted with the last manifest %s, its child states %.80s", a.Run, deletion.Manifest, a.Manifest)
	case deletion != nil:
		a.State, a.Deletion = AncestorDeleted, deletion
		return nil, nil
	case e == nil:
		a.State = AncestorMissing
		return nil, nil
	}
	defer e.Close()
	if err := e.matches(a.Parent); err != nil {
		return nil, err
	}
	r, err := verify(ctx, e, l.v.trust, true)
	a.State, a.Records, a.Erased = AncestorVerified, r.Records, uint64(len(r.Erasures))
	if err = about(a.Run, err); errors.Is(err, verdict.ErrCannotBeJudged) {
		var doubt *verdict.Verdict
		errors.As(err, &doubt)
		l.v.doubt(doubt)
		a.State, err = AncestorDoubtful, nil
	}
	return r.Parent, err
}

// open opens the record of an ancestor, if the evidence has it.
func (l *lineage) open(ctx context.Context, n uint64, run string) (*Evidence, *statement.Deletion, error) {
	e := l.v.evidence
	if !e.bundle {
		a, d, err := e.Ancestors(ctx, run)
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case err != nil:
			return nil, nil, verdict.Open(verdict.ErrUnreadable, "", "the record of run %.140s: %v", run, err)
		}
		return a, d, nil
	}
	name := wal.FileName(n, ancestorSuffix)
	f, err := e.files.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, verdict.Open(verdict.ErrUnreadable, name, "%v", err)
	}
	part, ok := f.(interface {
		io.ReaderAt
		Size() int64
	})
	if !ok {
		return nil, nil, verdict.Open(verdict.ErrUnreadable, name, "")
	}
	a, err := readBundle(part, part.Size())
	return a, nil, about(run, err)
}

// matches compares a record with what a child states of it.
func (e *Evidence) matches(stated audit.Parent) error {
	p, err := e.parent()
	if err != nil {
		return verdict.Broken(verdict.ErrParent, 0, "", "run %.140s is closed, says its child: %v", stated.Run, err)
	}
	for _, d := range []struct{ what, stated, is string }{
		{"run", stated.Run, p.Run}, {"last seq", fmt.Sprint(stated.Seq), fmt.Sprint(p.Seq)},
		{"last root", stated.Root, p.Root}, {"last manifest", stated.Manifest, p.Manifest},
	} {
		if d.stated != d.is {
			return verdict.Broken(verdict.ErrParent, 0, "", "its %s is %s, the child of %.140s states %.140s", d.what, d.is, stated.Run, d.stated)
		}
	}
	return nil
}

// strays finds bundles of ancestors that the run does not have.
func (l *lineage) strays(found uint64) error {
	e := l.v.evidence
	if !e.bundle {
		return nil
	}
	numbers, err := e.list(ancestorSuffix)
	if err != nil {
		return verdict.Open(verdict.ErrUnreadable, "", "%v", err)
	}
	for i, n := range numbers {
		if uint64(i) >= found || n != uint64(i+1) {
			return verdict.Broken(verdict.ErrStray, 0, wal.FileName(n, ancestorSuffix), "")
		}
	}
	return nil
}

// about adds the run to a verdict about an ancestor.
func about(run string, err error) error {
	var v *verdict.Verdict
	if !errors.As(err, &v) {
		return err
	}
	of := *v
	if of.Detail != "" {
		of.Detail += "; "
	}
	of.Detail += fmt.Sprintf("in the record of its ancestor %.140s", run)
	return &of
}
