package sealer

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
)

// Complete stores the manifest of a log that was signed last, and its leaves, if the writer died before it wrote them. The segment's
// records are durable: they were before it was signed. A nil manifest is none. The caller then calls wal.Recover.
func Complete(files wal.FS, dir string, last []byte) error {
	if last == nil {
		return nil
	}
	m, err := statement.ReadManifest(last)
	if err != nil {
		return err
	}
	path := func(suffix string) string { return filepath.Join(dir, wal.FileName(m.First, suffix)) }
	if _, err := files.ReadFile(path(wal.ManifestSuffix)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if m.Count > 0 {
		data, err := files.ReadFile(path(wal.SegmentSuffix))
		if err != nil {
			return err
		}
		var seg wal.Segment
		for f, err := range wal.ReadFrames(path(wal.SegmentSuffix), data) {
			if err != nil {
				return err
			}
			seg.Leaves = append(seg.Leaves, f.Leaf())
		}
		leaves, root := statement.Leaves(seg)
		if root != m.Root {
			return fmt.Errorf("the records from %d on are not those that were signed", m.First)
		}
		if err := writeFile(files, path(wal.LeavesSuffix), leaves); err != nil {
			return err
		}
	}
	return writeFile(files, path(wal.ManifestSuffix), last)
}

// writeFile durably creates a file.
func writeFile(files wal.FS, path string, data []byte) error {
	f, err := files.Create(path + wal.TempSuffix)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return errors.Join(files.Rename(path+wal.TempSuffix, path), files.SyncDir(filepath.Dir(path)))
}
