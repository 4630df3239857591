package proof

import (
	"bytes"

	"github.com/custody-project/custody/audit/proof/archive"
	"github.com/custody-project/custody/audit/wal"
)

// BundledRun is a closed run in the directory Dir whose bundle another one contains.
type BundledRun struct {
	Dir     string
	Options BundleOptions
}

// addAncestors adds the bundles of the run's ancestors.
func (b *bundler) addAncestors() error {
	for i, a := range b.Ancestors {
		if a.Options.Log != nil {
			a.Options.Checkpoint = b.checkpoint.note
		}
		of, err := newBundler(b.ctx, a.Dir, a.Options)
		if err != nil {
			return err
		}
		b.ancestors = append(b.ancestors, of)
		b.files = append(b.files, bundled{name: wal.FileName(uint64(i+1), ancestorSuffix), ancestor: of})
	}
	return nil
}

// add adds a file to an archive.
func (f bundled) add(a *archive.Writer) error {
	if f.ancestor != nil {
		var size count
		if err := f.ancestor.write(&size); err != nil { // the same bytes each time
			return err
		}
		return a.AddFunc(f.name, int64(size), f.ancestor.write)
	}
	data, err := f.make()
	if err != nil {
		return err
	}
	return a.Add(f.name, int64(len(data)), bytes.NewReader(data))
}

// count counts the bytes that are written to it.
type count int64

// Write implements io.Writer.
func (c *count) Write(b []byte) (int, error) {
	*c += count(len(b))
	return len(b), nil
}
