package proof_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// TestParentOf: the parent of a run is known only once its record is closed.
func TestParentOf(t *testing.T) {
	k, ctx := newKey(t), context.Background()
	dir := filepath.Join(t.TempDir(), "r-parent")
	l, err := wal.Create(dir, wal.Options{Run: "r-parent", Sealer: statement.NewSealer(k.signer, facts), SegmentAge: time.Hour})
	check(t, err)
	_, err = l.Append(ctx, output(t, "line\n"))
	check(t, err)
	if _, err := proof.ParentOf(ctx, dir); !errors.Is(err, verdict.ErrLive) {
		t.Errorf("live: %v", err)
	}
	check(t, l.Close(ctx, wal.Interrupted))
	p, err := proof.ParentOf(ctx, dir)
	check(t, err)
	last := glob(t, dir, wal.ManifestSuffix)
	m, signed := manifestOf(t, last[len(last)-1])
	if p.Run != "r-parent" || p.Seq != 1 || p.Root != m.Root.String() || p.Manifest != statement.Digest(signed).String() {
		t.Errorf("%+v", p)
	}
	if p.Seq != m.Last || len(p.Root) != 64 || len(p.Manifest) != 64 {
		t.Errorf("%+v, the manifest ends at seq %d", p, m.Last)
	}
	if r, err := verifyDir(t, dir, k.trusted); err != nil || r.Head.String() != p.Manifest {
		t.Errorf("%v, head %s", err, r.Head)
	}
	check(t, os.Remove(last[len(last)-1]))
	if _, err := proof.ParentOf(ctx, dir); !errors.Is(err, verdict.ErrTailCut) {
		t.Errorf("cut: %v", err)
	}
	if _, err := proof.ParentOf(ctx, filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}
