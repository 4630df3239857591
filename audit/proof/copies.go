package proof

import (
	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/verdict"
)

// Copied is the result of Verify for a copy.
type Copied struct {
	Direction string
	Count     int64
	Bytes     int64
	Root      string
	// Listed is set if the record lists every file, and they give the root.
	Listed bool
}

// copies compares the lists of copies with their ends, in the order of the record.
type copies struct {
	open  map[string]*merkle.CopyTree // lists without an end yet, by direction
	short map[string]bool             // those with a missing list
	ended []Copied
	wrong *verdict.Verdict // the first contradiction
}

// take adds a record about a copy. It ignores operations of newer versions.
func (s *copies) take(c copyClaim) {
	if c.Op != audit.CopyList && c.Op != audit.CopyEnd {
		return
	}
	if s.open == nil {
		s.open, s.short = map[string]*merkle.CopyTree{}, map[string]bool{}
	}
	d := c.Direction
	t := s.open[d]
	if t == nil {
		t = &merkle.CopyTree{}
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
		s.wrong = verdict.Broken(verdict.ErrCopied, c.seq, c.file, format, args...)
	}
}

// copyClaim is a record's statement about a copy.
type copyClaim struct {
	audit.Copy
	seq  uint64
	file string
}
