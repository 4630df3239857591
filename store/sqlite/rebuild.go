package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"

	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/store"
)

// damagedSuffix ends the name of the file that Rebuild replaced.
const damagedSuffix = ".damaged"

// rebuildSuffix ends the name of the temporary file of Rebuild.
const rebuildSuffix = ".rebuild"

// Rebuild makes a new database from segments, which the caller reads from the logs, and replaces the one at path with
// it. The old file, if there is one, is kept beside it with the ending ".damaged".
//
// Segments that are refused as malformed or conflicting are left out; their
// errors are joined and returned together with the number of ingested segments, and the
// rebuilt store is used nevertheless. After any other error the old file stays
// in place. No other process may have the store open.
func Rebuild(ctx context.Context, path string, segments iter.Seq2[store.Segment, error]) (int, error) {
	fresh := path + rebuildSuffix
	if err := remove(fresh); err != nil {
		return 0, fmt.Errorf("rebuild store: %w", err)
	}
	n, refused, err := fill(ctx, fresh, segments)
	if err != nil {
		return 0, errors.Join(fmt.Errorf("rebuild store: %w", err), remove(fresh))
	}
	if err := swap(fresh, path); err != nil {
		return 0, fmt.Errorf("rebuild store: %w", err)
	}
	return n, refused
}

// fill ingests all segments into a new database, which is closed on return, and so a single file.
func fill(ctx context.Context, path string, segments iter.Seq2[store.Segment, error]) (n int, refused, err error) {
	s, err := Open(ctx, path)
	if err != nil {
		return 0, nil, err
	}
	for seg, readErr := range segments {
		err := readErr
		if err == nil {
			err = s.Ingest(ctx, seg)
		}
		switch {
		case err == nil:
			n++
		case errors.Is(err, store.ErrMalformed), errors.Is(err, store.ErrConflict):
			refused = errors.Join(refused, err)
		default:
			return n, refused, errors.Join(err, s.Close())
		}
	}
	return n, refused, s.Close()
}

// swap renames the file at path and then fresh to path.
func swap(fresh, path string) error {
	if err := remove(path + damagedSuffix); err != nil { // from an earlier rebuild
		return err
	}
	damaged := regular.DatabaseFiles(path + damagedSuffix)
	for i, file := range regular.DatabaseFiles(path) { // SQLite would apply an old journal to the new file
		err := os.Rename(file, damaged[i])
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.Rename(fresh, path)
}

func remove(path string) error {
	for _, file := range regular.DatabaseFiles(path) {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
