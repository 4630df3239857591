package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/sqlite"
)

// BundleReader shows the one run of a bundle. It reads a separate store in a temporary directory, which Close removes,
// and uses no files of $CUSTODY_HOME.
type BundleReader struct {
	*sqlite.Store
	// Dir is the temporary directory; only its owner can read it.
	Dir string
	// Shown is the run.
	Shown    store.Run
	withheld map[uint64]bool
	last     uint64
	lock     *os.File // on Dir, while the reader is open
}

// ReadBundle returns a reader of a bundle's records, as the manifests in the bundle list them. It does not check
// signatures; proof.Verify does. It first removes the temporary directories of readers whose process died.
func ReadBundle(ctx context.Context, e *proof.Evidence) (*BundleReader, error) {
	sweepBundles()
	dir, lock, err := bundleDir()
	if err != nil {
		return nil, err
	}
	b := &BundleReader{Dir: dir, withheld: map[uint64]bool{}, lock: lock}
	if b.Store, err = sqlite.Open(ctx, filepath.Join(dir, "bundle.db")); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir), lock.Close())
	}
	if err := b.fill(ctx, e); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *BundleReader) fill(ctx context.Context, e *proof.Evidence) error {
	run := ""
	for s, err := range e.Sealed(ctx) {
		if err != nil {
			return err
		}
		seg := store.Segment{Tenant: s.Tenant, Host: s.Host, Run: s.Run, Index: s.Segment, First: s.First, Last: s.Last, Root: s.Root, Manifest: s.Signed}
		for _, row := range s.Rows {
			seg.Frames = append(seg.Frames, store.Frame(row))
		}
		if n := len(s.Rows); n > 0 { // withheld records have no rows
			seg.First, seg.Last = s.Rows[0].Seq, s.Rows[n-1].Seq
		}
		for _, seq := range s.Withheld {
			b.withheld[seq] = true
		}
		if err := b.Ingest(ctx, seg); err != nil {
			return err
		}
		run, b.last = s.Run, s.Last
	}
	var err error
	b.Shown, err = b.Run(ctx, "", run)
	return err
}

// Last is the seq of the run's last record, which may be withheld.
func (b *BundleReader) Last(store.Run) uint64 { return b.last }

// Withheld reports whether the bundle's exporter withheld the record's contents.
func (b *BundleReader) Withheld(seq uint64) bool { return b.withheld[seq] }

// Close closes the reader and removes its directory.
func (b *BundleReader) Close() error {
	return errors.Join(b.Store.Close(), os.RemoveAll(b.Dir), b.lock.Close())
}
