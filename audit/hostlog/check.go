package hostlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api/layout"

	"github.com/custody-project/custody/audit/proof/merkle"
)

// Check computes the tree from the entries and compares it with every tile, with each stored checkpoint and with the
// published one. It takes a few seconds for each million entries.
//
//	entries -> leaf hashes -> roots -> kept checkpoints, published checkpoint, tree state
//	             |              |
//	             +--- tiles ----+
//
// The error is ErrEntriesAltered with the index of the first altered entry, ErrTilesAltered with the first altered tile,
// ErrForked, ErrRolledBack, ErrMissing or ErrForged.
func (r *Reader) Check(ctx context.Context) error {
	kept, err := r.kept.all()
	if err != nil {
		return err
	}
	published, err := r.checkpoint()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	state, err := r.files.state() // last: other processes may append concurrently
	switch {
	case errors.Is(err, fs.ErrNotExist) && published.Note == nil:
		return nil // it is new
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: .state/treeState", ErrMissing)
	case err != nil:
		return err
	case state.Size < published.Size:
		return fmt.Errorf("%w: it has %d entries, %d were published", ErrRolledBack, state.Size, published.Size)
	}
	want := claims(kept, published)
	want[state.Size] = append(want[state.Size], claim{state.Root, "the tree's state", ErrTilesAltered})
	return (&checker{files: r.files, size: state.Size, want: want}).run(ctx)
}

// claim is a root that a file states for a size.
type claim struct {
	root merkle.Hash
	who  string
	err  error // if the root is different
}

func claims(kept []Checkpoint, published Checkpoint) map[uint64][]claim {
	want := map[uint64][]claim{}
	for i, k := range kept {
		want[k.Size] = append(want[k.Size], claim{k.Root, fmt.Sprintf("kept checkpoint %d", i), ErrForked})
	}
	if published.Note != nil {
		want[published.Size] = append(want[published.Size], claim{published.Root, "the published checkpoint", ErrForked})
	}
	return want
}

// checker computes the tree from the entries and compares it with the tiles.
type checker struct {
	files files
	size  uint64
	want  map[uint64][]claim

	tree  *compact.Range
	edge  [][]byte // by level: the hashes of the incomplete tile
	tiles error    // the first tile that differs
	leaf  error    // the first entry that differs from its leaf hash
}

func (c *checker) run(ctx context.Context) error {
	c.tree = (&compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}).NewEmptyRange(0)
	if err := c.compare(ctx, 0); err != nil {
		return err
	}
	at := uint64(0)
	for entry, err := range c.files.entries(ctx, 0, c.size) {
		if err != nil {
			return err
		}
		if err := c.add(ctx, at, entry); err != nil {
			return err
		}
		at++
		if err := c.compare(ctx, at); err != nil {
			return err
		}
	}
	if err := c.rest(ctx); err != nil {
		return err
	}
	return c.tiles // all roots were right
}

// add adds an entry to the tree, and compares the tiles that it completes.
func (c *checker) add(ctx context.Context, at uint64, entry []byte) error {
	leaf := rfc6962.DefaultHasher.HashLeaf(entry)
	err := c.tree.Append(leaf, nil)
	for level := 0; err == nil; level++ {
		if level == len(c.edge) {
			c.edge = append(c.edge, nil)
		}
		c.edge[level] = append(c.edge[level], leaf...)
		if len(c.edge[level]) < layout.TileWidth*len(leaf) {
			return nil
		}
		index := at >> (8 * (level + 1))
		if err := c.tile(ctx, uint64(level), index, 0); err != nil {
			return err
		}
		leaf = fold(c.edge[level])
		c.edge[level] = c.edge[level][:0]
	}
	return err
}

// rest compares the incomplete tiles.
func (c *checker) rest(ctx context.Context) error {
	for level, hashes := range c.edge {
		if n := len(hashes) / len(merkle.Hash{}); n > 0 {
			if err := c.tile(ctx, uint64(level), c.size>>(8*(level+1)), uint8(n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// tile compares the hashes at the edge of a level with the tile on disk. It records a difference and continues: the roots
// decide whether the tile or an entry was altered.
func (c *checker) tile(ctx context.Context, level, index uint64, p uint8) error {
	have, err := c.files.tile(ctx, level, index, p)
	if err != nil {
		return err
	}
	if bytes.Equal(have, c.edge[level]) || c.tiles != nil {
		return nil
	}
	c.tiles = fmt.Errorf("%w: %s", ErrTilesAltered, layout.TilePath(level, index, p))
	if level > 0 {
		return nil
	}
	for i := 0; i < len(have); i += len(merkle.Hash{}) {
		if !bytes.Equal(have[i:i+len(merkle.Hash{})], c.edge[0][i:i+len(merkle.Hash{})]) {
			c.leaf = fmt.Errorf("%w: entry %d does not match its hash in the tree", ErrEntriesAltered, index*layout.TileWidth+uint64(i/len(merkle.Hash{})))
			return nil
		}
	}
	return nil
}

// compare compares the root of the first size entries with those stated for that size.
func (c *checker) compare(ctx context.Context, size uint64) error {
	claims := c.want[size]
	if len(claims) == 0 {
		return nil
	}
	root := rfc6962.DefaultHasher.EmptyRoot()
	if size > 0 {
		var err error
		if root, err = c.tree.GetRootHash(nil); err != nil {
			return err
		}
	}
	for _, cl := range claims {
		if cl.root != merkle.Hash(root) {
			return c.blame(ctx, size, root, cl)
		}
	}
	if c.tiles != nil { // the entries match a signed root, so the tile was altered
		return c.tiles
	}
	return nil
}

// blame returns the error for entries that do not have the stated root. It compares the incomplete tiles too, which
// identify the altered entry.
func (c *checker) blame(ctx context.Context, size uint64, root []byte, cl claim) error {
	if c.leaf == nil {
		if p := uint8(size % layout.TileWidth); p > 0 {
			if err := c.tile(ctx, 0, size/layout.TileWidth, p); err != nil {
				return err
			}
		}
	}
	if c.leaf != nil {
		return c.leaf
	}
	return fmt.Errorf("%w: %d entries have the root %x, %s has %s", cl.err, size, root, cl.who, cl.root)
}

// fold returns the root of the complete subtree over the hashes of a full tile.
func fold(hashes []byte) []byte {
	for n := len(merkle.Hash{}); len(hashes) > n; {
		var up []byte
		for i := 0; i < len(hashes); i += 2 * n {
			up = append(up, rfc6962.DefaultHasher.HashChildren(hashes[i:i+n], hashes[i+n:i+2*n])...)
		}
		hashes = up
	}
	return hashes
}
