package hostlog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/custody-project/custody/audit/entries"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
)

// indexed is the index of the log's entries in DIR.entries. It serves to refuse a second history of a run. Prepare or the first
// Add opens it. Callers of its methods hold the append lock.
type indexed struct {
	path  string
	files files
	warn  func(error)
	index *entries.Index
}

func indexPath(dir string) string { return dir + ".entries" }

// reached is the key of the note with the number of indexed entries and the hash of the last one.
const reached = "reached"

func marshalReached(size uint64, last merkle.Hash) []byte {
	return append(binary.BigEndian.AppendUint64(nil, size), last[:]...)
}

// open opens the index, if it is not open.
func (x *indexed) open() (err error) {
	if x.index == nil {
		x.index, err = entries.Open(x.path)
	}
	return err
}

// prepare opens the index and adds the entries that it lacks.
func (x *indexed) prepare(ctx context.Context, size uint64) error {
	if err := x.open(); err != nil {
		return err
	}
	return x.index.Do(ctx, func(tx *entries.Tx) error { return x.catchUp(ctx, tx, size) })
}

// HoldIndex keeps the index of the log in dir open until the caller closes it. The last process that closes it moves SQLite's write-ahead log
// into the database: while it is held, no Close waits for that.
func HoldIndex(dir string) (io.Closer, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	return entries.Open(indexPath(path))
}

// find returns the index of an entry that is equal to entry. The error is ErrTwice if a different entry about the same
// run and segment, or about the same erased record, exists.
func (x *indexed) find(ctx context.Context, size uint64, entry []byte) (index uint64, found bool, err error) {
	l, err := statement.ParseLeaf(entry)
	if err != nil {
		return 0, false, nil // not an entry of a run
	}
	if err := x.open(); err != nil {
		return 0, false, err
	}
	err = x.index.Do(ctx, func(tx *entries.Tx) error {
		if err := x.catchUp(ctx, tx, size); err != nil {
			return err
		}
		var digest merkle.Hash
		if index, digest, found, err = tx.Find(l); err != nil || !found || digest == l.Digest {
			return err
		}
		return fmt.Errorf("%w: %s %s %d is entry %d already, with digest %s", ErrTwice, l.Of, l.Run, l.N, index, digest)
	})
	if !found || err != nil {
		return 0, false, err
	}
	return index, true, x.confirm(index, entry)
}

// confirm compares the index's answer with the log. An attacker who can write one can write the other, but this detects
// accidental damage.
func (x *indexed) confirm(index uint64, entry []byte) error {
	for e, err := range x.files.entries(context.Background(), index, index+1) {
		if err == nil && !bytes.Equal(e, entry) {
			err = fmt.Errorf("%w: %s and the log differ about entry %d; remove that file", ErrEntriesAltered, x.path, index)
		}
		return err
	}
	return nil
}

// catchUp adds the entries that the index lacks, or all of them if the index is of another log.
func (x *indexed) catchUp(ctx context.Context, tx *entries.Tx, size uint64) error {
	from, err := x.from(ctx, tx, size)
	if err != nil || from == size {
		return err
	}
	at, last := from, merkle.Hash{}
	for entry, err := range x.files.entries(ctx, from, size) {
		if err != nil {
			return err
		}
		if err := x.take(tx, at, entry); err != nil {
			return err
		}
		at, last = at+1, statement.LogHash(entry)
	}
	return tx.Keep(reached, marshalReached(size, last))
}

// from returns how many entries of this log the index has.
func (x *indexed) from(ctx context.Context, tx *entries.Tx, size uint64) (uint64, error) {
	note, err := tx.Note(reached)
	if err != nil || len(note) == 0 {
		return 0, err
	}
	if len(note) == 8+len(merkle.Hash{}) {
		n := binary.BigEndian.Uint64(note)
		if n > 0 && n <= size {
			for entry, err := range x.files.entries(ctx, n-1, n) {
				if hash := statement.LogHash(entry); err != nil || bytes.Equal(hash[:], note[8:]) {
					return n, err
				}
			}
		}
	}
	return 0, tx.Clear()
}

// take adds one entry, and warns if the log already has a second history.
func (x *indexed) take(tx *entries.Tx, at uint64, entry []byte) error {
	conflict, err := tx.Take(at, entry)
	if err == nil && conflict != nil && conflict.Err == entries.ErrTwice {
		x.warn(fmt.Errorf("host log: %w", conflict))
	}
	return err
}

// added adds an entry that was just appended.
func (x *indexed) added(ctx context.Context, index uint64, entry []byte) error {
	if x.index == nil {
		return nil
	}
	return x.index.Do(ctx, func(tx *entries.Tx) error {
		if err := x.take(tx, index, entry); err != nil {
			return err
		}
		return tx.Keep(reached, marshalReached(index+1, statement.LogHash(entry)))
	})
}

func (x *indexed) close() error {
	if x.index == nil {
		return nil
	}
	return x.index.Close()
}

// Twice returns the entries under the last checkpoint that contradict an earlier one, in order: the log then
// has two histories of a run.
func (r *Reader) Twice(ctx context.Context) ([]*entries.Conflict, error) {
	c, err := r.checkpoint()
	if err != nil {
		return nil, err
	}
	type about struct {
		of, run string
		n       uint64
	}
	type entry struct {
		at     uint64
		digest merkle.Hash
	}
	first := map[about]entry{}
	var all []*entries.Conflict
	at := uint64(0)
	for e, err := range r.files.entries(ctx, 0, c.Size) {
		if err != nil {
			return all, err
		}
		l, err := statement.ParseLeaf(e)
		if err == nil && l.Of != statement.OfRotation {
			key := about{l.Of, l.Run, l.N}
			if before, ok := first[key]; !ok {
				first[key] = entry{at, l.Digest}
			} else if before.digest != l.Digest {
				all = append(all, &entries.Conflict{Index: at, Leaf: l, First: before.at, Err: ErrTwice})
			}
		}
		at++
	}
	return slices.Clip(all), errors.Join(ctx.Err())
}
