package proof

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// ParentOf returns what the first event of a run records of its parent, from the parent's closed record in dir. The caller
// sets Op. The error is verdict.ErrLive if a process still writes the record, and verdict.ErrTailCut if it was not closed.
// It verifies nothing.
func ParentOf(ctx context.Context, dir string) (audit.Parent, error) {
	e, err := OpenDir(dir)
	if err != nil {
		return audit.Parent{}, err
	}
	defer e.Close()
	if err := ctx.Err(); err != nil {
		return audit.Parent{}, err
	}
	p, err := e.parent()
	if err != nil {
		return audit.Parent{}, fmt.Errorf("parent %s: %w", filepath.Base(dir), err)
	}
	return p, nil
}

// parent returns the parent of runs that continue this one.
func (e *Evidence) parent() (p audit.Parent, err error) {
	if e.Live {
		return p, verdict.Open(verdict.ErrLive, "", "")
	}
	firsts, err := e.list(wal.ManifestSuffix)
	if err != nil {
		return p, err
	}
	if len(firsts) == 0 {
		return p, verdict.Broken(verdict.ErrTailCut, 0, "", "")
	}
	s, err := e.sealedManifest(firsts[len(firsts)-1])
	switch {
	case err != nil:
		return p, err
	case s.Closing == wal.Open:
		return p, verdict.Broken(verdict.ErrTailCut, 0, "", "the last manifest ends at seq %d", s.Last)
	}
	return audit.Parent{Run: s.Run, Seq: s.Last, Root: s.Root.String(), Manifest: statement.Digest(s.Signed).String()}, nil
}
