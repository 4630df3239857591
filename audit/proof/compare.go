package proof

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// found is one frame as read: proven, foreign or broken.
type found struct {
	leaf merkle.Hash
	seq  uint64
	run  string
	err  error
}

// compare checks a segment's bytes against its manifest and leaf hashes. It has the same result as
// walk, more slowly, and names every kind of difference.
func compare(m statement.Manifest, file string, data []byte, leaves []merkle.Hash) ([]wal.Frame, error) {
	frames, all := scan(file, data)
	for _, f := range all {
		if f.err == nil && f.run != m.Run {
			return nil, verdict.Broken(verdict.ErrRunMismatch, f.seq, file, "it belongs to run %s, the manifest to run %s", f.run, m.Run)
		}
	}
	if uint64(len(leaves)) != m.Count || merkle.Root(leaves) != m.Root {
		return nil, withoutLeaves(m, file, all)
	}
	c := comparison{m: m, file: file, leaves: leaves, found: all, cut: int64(len(data)) < m.Bytes}
	if err := c.run(); err != nil {
		return nil, err
	}
	if int64(len(data)) != m.Bytes {
		return nil, verdict.Broken(verdict.ErrContradiction, 0, file, "it has %d bytes, the manifest says %d", len(data), m.Bytes)
	}
	return frames, nil
}

// scan reads all frames whose bounds can be found.
func scan(file string, data []byte) (frames []wal.Frame, all []found) {
	r := wal.NewReader(file, bytes.NewReader(data))
	for {
		f, err := r.Next()
		switch {
		case err == io.EOF:
			return frames, all
		case err == nil:
			frames = append(frames, f)
			all = append(all, found{leaf: f.Leaf(), seq: f.Seq, run: f.Run})
			continue
		}
		all = append(all, found{err: err})
		if !errors.Is(err, wal.ErrChecksum) && !errors.Is(err, wal.ErrHead) && !errors.Is(err, wal.ErrErased) {
			return frames, all
		}
	}
}

// withoutLeaves returns the finding if the leaf hashes are unusable.
func withoutLeaves(m statement.Manifest, file string, all []found) error {
	var tree merkle.Tree
	for _, f := range all {
		if f.err != nil {
			return verdict.Broken(verdict.ErrAltered, 0, file, "one of seqs %d to %d: %v; the leaf hashes do not give the signed root either",
				m.First, m.Last, f.err)
		}
		tree.Append(f.leaf)
	}
	leaves := wal.FileName(m.First, wal.LeavesSuffix)
	if tree.Root() == m.Root {
		return verdict.Broken(verdict.ErrLeaves, 0, leaves, "they do not give the signed root; the records of this segment themselves do")
	}
	return verdict.Broken(verdict.ErrAltered, 0, file, "one of seqs %d to %d; %s does not give the signed root either, so it cannot be said which",
		m.First, m.Last, leaves)
}

// comparison finds and names the first difference between the frames that were found and those that were
// signed.
type comparison struct {
	m      statement.Manifest
	file   string
	leaves []merkle.Hash // proven by the root
	found  []found
	cut    bool // the file is shorter than the signed one
}

func (c *comparison) run() error {
	n := min(len(c.leaves), len(c.found))
	for i := range n {
		if c.found[i].err != nil || c.found[i].leaf != c.leaves[i] {
			return c.name(i)
		}
	}
	switch {
	case len(c.found) > n:
		return c.surplus(n)
	case len(c.leaves) > n:
		return c.missing(n, "the segment ends before it")
	}
	return nil
}

// name returns what is wrong at i, the first difference.
func (c *comparison) name(i int) error {
	f := c.found[i]
	switch {
	case errors.Is(f.err, wal.ErrTorn) && c.cut:
		return c.missing(i, "the segment is cut off inside it")
	case f.err != nil:
		return verdict.Broken(verdict.ErrAltered, c.seq(i), c.file, "%v", f.err)
	case slices.Contains(c.leaves[:i], f.leaf):
		return verdict.Broken(verdict.ErrDuplicated, f.seq, c.file, "it comes again after seq %d", c.seq(i)-1)
	case c.again(i):
		return verdict.Broken(verdict.ErrDuplicated, f.seq, c.file, "it comes before seq %d already", c.seq(i))
	case slices.Contains(c.leaves[i:], f.leaf) && c.later(i):
		return verdict.Broken(verdict.ErrReordered, c.seq(i), c.file, "seq %d comes in its place", f.seq)
	case slices.Contains(c.leaves[i:], f.leaf):
		return c.missing(i, "seq "+utoa(f.seq)+" comes in its place")
	case c.later(i):
		return verdict.Broken(verdict.ErrInserted, f.seq, c.file, "before seq %d", c.seq(i))
	case (f.seq < c.m.First || f.seq > c.m.Last) && !c.right(i+1):
		return verdict.Broken(verdict.ErrReordered, c.seq(i), c.file, "seq %d, which belongs to another segment, comes in its place", f.seq)
	}
	return verdict.Broken(verdict.ErrAltered, c.seq(i), c.file, "it does not give the leaf hash that was signed")
}

// surplus returns the finding for a frame after the last signed one.
func (c *comparison) surplus(i int) error {
	f := c.found[i]
	if f.err == nil && slices.Contains(c.leaves, f.leaf) {
		return verdict.Broken(verdict.ErrDuplicated, f.seq, c.file, "it occurs again after the end")
	}
	return verdict.Broken(verdict.ErrAppended, f.seq, c.file, "%d records were sealed", len(c.leaves))
}

func (c *comparison) missing(i int, detail string) error {
	return verdict.Broken(verdict.ErrMissing, c.seq(i), c.file, "%s", detail)
}

// again reports whether the record found at i is a signed record that occurs again later.
func (c *comparison) again(i int) bool {
	leaf := c.found[i].leaf
	same := func(f found) bool { return f.err == nil && f.leaf == leaf }
	return slices.Contains(c.leaves, leaf) && slices.ContainsFunc(c.found[i+1:], same)
}

// right reports whether the record found at i is the signed one.
func (c *comparison) right(i int) bool {
	return i < len(c.found) && i < len(c.leaves) && c.found[i].leaf == c.leaves[i]
}

// later reports whether the record signed for at i occurs later.
func (c *comparison) later(i int) bool {
	signed := func(f found) bool { return f.err == nil && f.leaf == c.leaves[i] }
	return slices.ContainsFunc(c.found[i+1:], signed)
}

// seq returns the seq of the record signed for at i, from its predecessor's.
// After a declared hole it is the first seq of the hole.
func (c *comparison) seq(i int) uint64 {
	if i == 0 {
		return c.m.First
	}
	return c.found[i-1].seq + 1
}

func utoa(n uint64) string { return strconv.FormatUint(n, 10) }
