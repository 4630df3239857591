package proof

import (
	"context"
	"encoding/json"
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

// StatedParent returns the parent that the record in dir states; nil if the run began from a template, or if its start is
// not in the record. It verifies nothing.
func StatedParent(dir string) (*audit.Parent, error) {
	l, err := startOf(dir)
	if err != nil || l == nil {
		return nil, err
	}
	return l.Parent, nil
}

// startOf reads the start of a run from the first segment of its record; nil if it is not there.
func startOf(dir string) (*audit.Lifecycle, error) {
	segments, err := wal.Segments(dir)
	if err != nil || len(segments) == 0 {
		return nil, err
	}
	for f, err := range wal.ReadSegment(segments[0]) {
		if err != nil {
			break // torn: there is no start
		}
		if f.Erased {
			continue
		}
		var r audit.Record
		if err := json.Unmarshal(f.Bytes, &r); err != nil {
			return nil, fmt.Errorf("read the start of the run: seq %d: %w", f.Seq, err)
		}
		if r.Kind == audit.KindRun && r.Lifecycle != nil {
			return r.Lifecycle, nil
		}
	}
	return nil, nil
}
