package proof

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/custody-project/custody/audit"
)

// CopyLeaf returns the hash of one file of a copy: LeafHash over its list's salt and over path, as, mode, size, sha256
// and link, as they stand in the record and with a zero byte between each two. None of these has a zero byte in it.
func CopyLeaf(salt [16]byte, f audit.CopiedFile) Hash {
	fields := []string{string(f.Path), string(f.As), f.Mode, fmt.Sprint(f.Size), f.SHA256, string(f.Link)}
	return LeafHash(salt, []byte(strings.Join(fields, "\x00")))
}

// CopyTree is the Merkle tree over the files of one copy. The zero CopyTree has none.
type CopyTree struct {
	tree  Tree
	bytes int64
}

// Add adds the files of a list.
func (t *CopyTree) Add(c *audit.Copy) error {
	salt, err := hex.DecodeString(c.Salt)
	if err != nil || len(salt) != 16 {
		return fmt.Errorf("the salt %.40q is not 16 bytes in hex", c.Salt)
	}
	for _, f := range c.Files {
		t.tree.Append(CopyLeaf([16]byte(salt), f))
		t.bytes += f.Size
	}
	return nil
}

// Count is how many files there are, and Bytes how many bytes of content they have.
func (t *CopyTree) Count() int64 { return int64(t.tree.size) }

// Bytes is how many bytes of content the files have.
func (t *CopyTree) Bytes() int64 { return t.bytes }

// Root is the root over all files.
func (t *CopyTree) Root() Hash { return t.tree.Root() }

// Copied is what Verify established about a copy.
type Copied struct {
	Direction string
	Count     int64
	Bytes     int64
	Root      string
	// Listed is set if the record shows every file, and they give the root.
	Listed bool
}

// copies holds the lists of copies against their ends, in the order of the record.
type copies struct {
	open  map[string]*CopyTree // lists without an end yet, by direction
	short map[string]bool      // those of which something is not there
	ended []Copied
	wrong *Verdict // the first contradiction
}

// take takes what a record says of a copy; what a newer version may say beside lists and ends is nothing to it.
func (s *copies) take(c copyClaim) {
	if c.Op != audit.CopyList && c.Op != audit.CopyEnd {
		return
	}
	if s.open == nil {
		s.open, s.short = map[string]*CopyTree{}, map[string]bool{}
	}
	d := c.Direction
	t := s.open[d]
	if t == nil {
		t = &CopyTree{}
		s.open[d] = t
	}
	if c.Op == audit.CopyList {
		err := t.Add(&c.Copy)
		if missing := c.First != t.Count()-int64(len(c.Files)); missing || err != nil {
			s.short[d] = true
			s.suspect(c, "its list begins with file %d", c.First)
		}
		return
	}
	e := Copied{Direction: d, Count: c.Count, Bytes: c.Bytes, Root: c.Root}
	e.Listed = !s.short[d] && t.Count() == c.Count && t.Bytes() == c.Bytes && t.Root().String() == c.Root
	if !e.Listed {
		s.suspect(c, "%d files are listed, and do not give the root over %d", t.Count(), c.Count)
	}
	s.ended = append(s.ended, e)
	delete(s.open, d)
	delete(s.short, d)
}

func (s *copies) suspect(c copyClaim, format string, args ...any) {
	if s.wrong == nil {
		s.wrong = broken(ErrCopied, c.seq, c.file, format, args...)
	}
}

// copyClaim is a record's statement on a copy.
type copyClaim struct {
	audit.Copy
	seq  uint64
	file string
}

// copied returns whether the copies match their lists. If a record cannot be read, a list may be short.
func (v *verifier) copied() error {
	v.report.Copies = v.copies.ended
	gone := v.strange || v.report.Withheld > 0 || len(v.holes) > 0
	for _, e := range v.report.Erasures {
		gone = gone || e.Kind == audit.KindCopy
	}
	if v.copies.wrong == nil || gone {
		return nil
	}
	return v.copies.wrong
}
