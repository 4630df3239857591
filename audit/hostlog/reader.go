package hostlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"strings"

	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api/layout"
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/internal/regular"
)

// Reader reads a log without writing to it and without locks, while other processes append. It is a
// proof.Log. It is safe for concurrent use.
type Reader struct {
	files files
	kept  kept
}

// OpenReader returns a Reader of the log in dir, whose checkpoints are signed by v's key, or
// by one of its predecessors, older.
func OpenReader(dir string, v note.Verifier, older ...note.Verifier) (*Reader, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	return &Reader{files: newFiles(dir), kept: newKept(dir, newKeys(v, older...))}, nil
}

// Checkpoint returns the last published signed note, with the cosignatures of witnesses. The
// error is ErrRolledBack or ErrForked if it is not the newest that was kept, ErrForged if it is
// not signed by the log's key, and wraps fs.ErrNotExist if there is none yet.
func (r *Reader) Checkpoint(context.Context) ([]byte, error) {
	c, err := r.checkpoint()
	return c.Note, err
}

func (r *Reader) checkpoint() (Checkpoint, error) {
	last, err := r.kept.last() // before the checkpoint file, which is written first
	if err != nil {
		return Checkpoint{}, err
	}
	c, err := r.files.published(r.kept.keys)
	switch {
	case err != nil:
		return Checkpoint{}, err
	case c.Note == nil && last.Note != nil:
		return Checkpoint{}, fmt.Errorf("%w: checkpoint", ErrMissing)
	case c.Note == nil:
		return Checkpoint{}, fmt.Errorf("the host's log has no checkpoint yet: %w", fs.ErrNotExist)
	}
	if err := c.follows(last); err != nil {
		return Checkpoint{}, err
	}
	return c, nil
}

// Checkpoints returns the published checkpoints, oldest first; of very many, only a part of the older ones is kept. It
// verifies the signature of each, and that no two contradict each other in size; Check compares them with the tree.
func (r *Reader) Checkpoints(context.Context) ([]Checkpoint, error) { return r.kept.all() }

// Unchecked is Checkpoints without verification of signatures. Open verifies a single one.
func (r *Reader) Unchecked(context.Context) ([]Checkpoint, error) {
	data, err := regular.ReadFile(r.kept.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return Unchecked(data), err
}

// Unchecked reads the checkpoints in data, each followed by an empty line. It skips anything else.
func Unchecked(data []byte) (all []Checkpoint) {
	notes, _ := splitNotes(data)
	for _, signed := range notes {
		text, _, _ := strings.Cut(string(signed), "\n\n")
		if c, err := statement.ParseCheckpoint(text + "\n"); err == nil {
			all = append(all, Checkpoint{Note: signed, Size: c.Size, Root: c.Root})
		}
	}
	return all
}

// Open verifies that a checkpoint is signed by the log's key, and parses it. It does not check that it belongs to this tree.
func (r *Reader) Open(signed []byte) (Checkpoint, error) { return r.kept.keys.open(signed) }

// Index returns the index of an entry under the last checkpoint, given its bytes; the last index if it was added more
// than once. It searches backward from the newest entry: it finds a recent entry immediately, an old one in about 20 ms
// for each million newer entries. The error is ErrNotFound, which wraps fs.ErrNotExist.
func (r *Reader) Index(ctx context.Context, entry []byte) (uint64, error) {
	c, err := r.checkpoint()
	if err != nil {
		return 0, err
	}
	leaf := rfc6962.DefaultHasher.HashLeaf(entry)
	for end := c.Size; end > 0; {
		first := (end - 1) / layout.TileWidth * layout.TileWidth
		hashes, err := r.files.tile(ctx, 0, first/layout.TileWidth, layout.PartialTileSize(0, first/layout.TileWidth, c.Size))
		if err != nil {
			return 0, err
		}
		for at := len(hashes) - len(leaf); at >= 0; at -= len(leaf) {
			if bytes.Equal(hashes[at:at+len(leaf)], leaf) {
				return first + uint64(at/len(leaf)), nil
			}
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		end = first
	}
	return 0, ErrNotFound
}

// Inclusion returns the audit path of the entry at index in the tree of that size, from the
// leaf up (RFC 6962, section 2.1.1).
func (r *Reader) Inclusion(ctx context.Context, index, size uint64) ([]merkle.Hash, error) {
	if index >= size {
		return nil, fmt.Errorf("%w: entry %d in a tree of %d", ErrNotFound, index, size)
	}
	path, err := r.files.inclusion(ctx, index, size)
	return hashes(path), err
}

// Consistency returns the proof that the tree of size to extends that of size from (RFC 6962,
// section 2.1.2). It is empty if from is 0 or to.
func (r *Reader) Consistency(ctx context.Context, from, to uint64) ([]merkle.Hash, error) {
	if from > to {
		return nil, fmt.Errorf("a tree of %d entries does not continue one of %d", to, from)
	}
	if from == 0 || from == to {
		return nil, nil
	}
	path, err := r.files.consistency(ctx, from, to)
	return hashes(path), err
}

func hashes(path [][]byte) []merkle.Hash {
	all := make([]merkle.Hash, len(path))
	for i, h := range path {
		all[i] = merkle.Hash(h)
	}
	return all
}

// Entries yields the entries with index from to to-1, which the last checkpoint must cover. It stops after an error. It
// does not verify them: see Check.
func (r *Reader) Entries(ctx context.Context, from, to uint64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		c, err := r.checkpoint()
		if err == nil && to > c.Size {
			err = fmt.Errorf("%w: entry %d of %d", ErrNotFound, to, c.Size)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		for entry, err := range r.files.entries(ctx, from, to) {
			if !yield(entry, err) || err != nil {
				return
			}
		}
	}
}

// entries yields the entries of a tree of at least to entries.
func (f files) entries(ctx context.Context, from, to uint64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for from < to {
			index := from / layout.TileWidth
			bundle, err := f.bundle(index, layout.PartialTileSize(0, index, to))
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, entry := range bundle[from%layout.TileWidth:] {
				if !yield(entry, nil) {
					return
				}
				from++
			}
		}
	}
}

// Holds checks that the log extends a checkpoint that is kept elsewhere, in a bundle or by
// a witness. The error is ErrRolledBack if the log is shorter, ErrForked if it is another log, ErrForged if the
// note is not signed by the log's key.
func (r *Reader) Holds(ctx context.Context, signed []byte) error {
	theirs, err := r.kept.keys.open(signed)
	if err != nil {
		return err
	}
	ours, err := r.checkpoint()
	if err != nil {
		return err
	}
	return r.files.extends(ctx, theirs.tree(), ours.tree())
}

var _ proof.Log = (*Reader)(nil)
