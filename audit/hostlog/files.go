package hostlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api"
	"github.com/transparency-dev/tessera/api/layout"
	"github.com/transparency-dev/tessera/client"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/internal/regular"
)

// tree is a size and the root of that many entries.
type tree struct {
	Size uint64
	Root merkle.Hash
}

// files reads the log's directory.
type files struct{ dir string }

func newFiles(dir string) files { return files{dir: dir} }

func (f files) path(rel string) string { return filepath.Join(f.dir, filepath.FromSlash(rel)) }

// state returns the integrated tree as Tessera stored it.
func (f files) state() (tree, error) {
	raw, err := regular.ReadFile(f.path(".state/treeState"))
	if err != nil {
		return tree{}, err
	}
	var s struct {
		Size uint64 `json:"size"`
		Root []byte `json:"root"`
	}
	if err := json.Unmarshal(raw, &s); err != nil || len(s.Root) != len(merkle.Hash{}) {
		return tree{}, fmt.Errorf("%w: .state/treeState is not readable", ErrTilesAltered)
	}
	return tree{Size: s.Size, Root: merkle.Hash(s.Root)}, nil
}

// tile returns the first p hashes of a tile, all 256 if p is 0. It implements client.TileFetcherFunc.
func (f files) tile(_ context.Context, level, index uint64, p uint8) ([]byte, error) {
	want := width(p)
	raw, err := f.wide(func(p uint8) string { return layout.TilePath(level, index, p) }, p, func(raw []byte, w int) error {
		if len(raw) != w*len(merkle.Hash{}) {
			return ErrTilesAltered
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return raw[:want*len(merkle.Hash{})], nil
}

// bundle returns the first p entries of a bundle, all 256 if p is 0.
func (f files) bundle(index uint64, p uint8) ([][]byte, error) {
	var b api.EntryBundle
	_, err := f.wide(func(p uint8) string { return layout.EntriesPath(index, p) }, p, func(raw []byte, w int) error {
		b = api.EntryBundle{}
		if err := b.UnmarshalText(raw); err != nil || len(b.Entries) != w {
			return ErrEntriesAltered
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return b.Entries[:width(p)], nil
}

func width(p uint8) int {
	if p == 0 {
		return layout.TileWidth
	}
	return int(p)
}

// wide reads the file of p hashes or entries, or a wider one, which begins with the same ones: prune may remove narrower
// files concurrently.
func (f files) wide(path func(p uint8) string, p uint8, whole func(raw []byte, w int) error) ([]byte, error) {
	var err error
	for range 8 {
		var raw []byte
		for _, have := range f.widths(path, p) {
			raw, err = regular.ReadFile(f.path(path(have)))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = whole(raw, width(have))
			}
			if err != nil {
				err = fmt.Errorf("%s has %d bytes: %w", path(have), len(raw), err)
			}
			return raw, err
		}
	}
	return nil, fmt.Errorf("%w: %s: %w", ErrMissing, path(p), fs.ErrNotExist)
}

// widths lists the widths of the files to try, best first. It lists the directory only if necessary.
func (f files) widths(path func(p uint8) string, p uint8) []uint8 {
	if _, err := os.Stat(f.path(path(p))); err == nil || p == 0 {
		return []uint8{p}
	}
	all := []uint8{0}
	names, _ := os.ReadDir(f.path(path(0) + ".p"))
	for _, n := range names {
		if w, ok := partialWidth(n.Name()); ok && w >= p {
			all = append(all, w)
		}
	}
	return all
}

// partialWidth parses the name of a partial tile.
func partialWidth(name string) (uint8, bool) {
	w, err := strconv.ParseUint(name, 10, 8)
	return uint8(w), err == nil && w > 0 && strconv.FormatUint(w, 10) == name
}

// nodes calls compute with a fetcher of tiles. It returns an error of the fetcher unchanged, because Tessera's client
// formats it without wrapping it.
func (f files) nodes(compute func(client.TileFetcherFunc) ([][]byte, error)) ([][]byte, error) {
	var failed error
	nodes, err := compute(func(ctx context.Context, level, index uint64, p uint8) ([]byte, error) {
		raw, err := f.tile(ctx, level, index, p)
		if failed == nil {
			failed = err
		}
		return raw, err
	})
	if failed != nil {
		return nil, failed
	}
	return nodes, err
}

// inclusion returns the audit path of the entry at index in the tree of that size.
func (f files) inclusion(ctx context.Context, index, size uint64) ([][]byte, error) {
	return f.nodes(func(tile client.TileFetcherFunc) ([][]byte, error) {
		b, err := client.NewProofBuilder(ctx, size, tile)
		if err != nil {
			return nil, err
		}
		return b.InclusionProof(ctx, index)
	})
}

// consistency returns the proof that the tree of size to extends that of size from.
func (f files) consistency(ctx context.Context, from, to uint64) ([][]byte, error) {
	return f.nodes(func(tile client.TileFetcherFunc) ([][]byte, error) {
		b, err := client.NewProofBuilder(ctx, to, tile)
		if err != nil {
			return nil, err
		}
		return b.ConsistencyProof(ctx, from, to)
	})
}

// root computes the root of the first size entries from the tiles at their edge.
func (f files) root(ctx context.Context, size uint64) (merkle.Hash, error) {
	if size == 0 {
		return merkle.Hash(rfc6962.DefaultHasher.EmptyRoot()), nil
	}
	nodes, err := f.nodes(func(tile client.TileFetcherFunc) ([][]byte, error) {
		return client.FetchRangeNodes(ctx, size, tile)
	})
	if err != nil {
		return merkle.Hash{}, err
	}
	r, err := (&compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}).NewRange(0, size, nodes)
	if err != nil {
		return merkle.Hash{}, err
	}
	root, err := r.GetRootHash(nil)
	if err != nil {
		return merkle.Hash{}, err
	}
	return merkle.Hash(root), nil
}

// checkEdge checks that the log can be appended to: the tiles at the edge have the root of the tree's state, and the last
// bundle's entries match their hashes.
func (f files) checkEdge(ctx context.Context, t tree) error {
	root, err := f.root(ctx, t.Size)
	if err != nil {
		return err
	}
	if root != t.Root {
		return fmt.Errorf("%w: their root at %d entries is %s, the tree's state has %s", ErrTilesAltered, t.Size, root, t.Root)
	}
	p := uint8(t.Size % layout.TileWidth)
	if p == 0 {
		return nil
	}
	entries, err := f.bundle(t.Size/layout.TileWidth, p)
	if err != nil {
		return err
	}
	hashes, err := f.tile(ctx, 0, t.Size/layout.TileWidth, p)
	if err != nil {
		return err
	}
	return compareLeaves(t.Size-uint64(p), entries, hashes)
}

// compareLeaves compares entries with their hashes in a tile; first is the index of the first entry.
func compareLeaves(first uint64, entries [][]byte, hashes []byte) error {
	for i, e := range entries {
		if n := len(merkle.Hash{}); !bytes.Equal(rfc6962.DefaultHasher.HashLeaf(e), hashes[i*n:(i+1)*n]) {
			return fmt.Errorf("%w: entry %d does not match its hash in the tree", ErrEntriesAltered, first+uint64(i))
		}
	}
	return nil
}

// prune removes partial tiles that a wider one contains: those narrower than the tree of size keep, the checkpoint before
// the last, needs. A reader uses the wider one instead. Tessera would remove them only when a tile is full, after they
// have used 80 KB for each entry.
func (f files) prune(keep uint64) {
	f.pruneAt(keep, func(index uint64) string { return layout.EntriesPath(index, 0) })
	for level, size := uint64(0), keep; size > 0; level, size = level+1, size/layout.TileWidth {
		f.pruneAt(size, func(index uint64) string { return layout.TilePath(level, index, 0) })
	}
}

func (f files) pruneAt(size uint64, path func(index uint64) string) {
	last := size / layout.TileWidth
	if last > 0 { // the previous one is full
		if _, err := os.Stat(f.path(path(last - 1))); err == nil {
			os.RemoveAll(f.path(path(last-1) + ".p"))
		}
	}
	dir := f.path(path(last) + ".p")
	names, _ := os.ReadDir(dir)
	for _, n := range names {
		if w, ok := partialWidth(n.Name()); ok && uint64(w) < size%layout.TileWidth {
			os.Remove(filepath.Join(dir, n.Name()))
		}
	}
}

// stray matches the names of Tessera's temporary files: the final name followed by a random number. A partial tile's name
// is only a number.
var stray = regexp.MustCompile(`^(x?\d{3}\d+|\d{4,}|(treeState|version|checkpoint)\d+)$`)

// sweep removes temporary files of failed or killed writers, around the edge of a tree of that size. The caller holds
// the append lock.
func (f files) sweep(size uint64) {
	dirs := []string{".state", "."}
	for level, n := uint64(0), size; ; level, n = level+1, n/layout.TileWidth {
		full := layout.TilePath(level, n/layout.TileWidth, 0)
		dirs = append(dirs, filepath.Dir(full), full+".p")
		if n == 0 {
			break
		}
	}
	full := layout.EntriesPath(size/layout.TileWidth, 0)
	for _, dir := range append(dirs, filepath.Dir(full), full+".p") {
		names, _ := os.ReadDir(f.path(dir))
		for _, n := range names {
			if n.Type().IsRegular() && stray.MatchString(n.Name()) {
				os.Remove(filepath.Join(f.path(dir), n.Name()))
			}
		}
	}
}
