package proof

import (
	"cmp"
	"context"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/schema"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// contents accumulates the contents of a run's segments, in order.
type contents struct {
	v        *verifier
	withheld statement.Withheld
	holes    []hole
	copies   copies
	excuses  []audit.Gap // what the host's log declared lost
	strange  bool        // a newer version wrote a record: it may declare holes, or list files
	started  bool        // the run's first start was taken
}

// check checks all segments, several concurrently, takes their results in order, and then checks the run as a whole.
func (c *contents) check(ctx context.Context) error {
	if err := c.segments(ctx); err != nil {
		return err
	}
	return c.end()
}

func (c *contents) segments(ctx context.Context) error {
	if len(c.v.manifests) == 0 {
		return nil
	}
	form := schema.New()
	workers := make([]*worker, min(maxWorkers, runtime.GOMAXPROCS(0), len(c.v.manifests)))
	for i := range workers {
		workers[i] = &worker{
			prover: newProver(c.v.evidence, c.v.report.Run), erasures: c.v.erasures, scanner: schema.NewScanner(form),
		}
	}
	for some := range slices.Chunk(c.v.manifests, 4*len(workers)) {
		parts, err := checkAll(ctx, workers, some)
		if err != nil {
			return err
		}
		for i, p := range parts {
			if p.err == nil {
				p.err = c.take(some[i], p)
				some[i].oldest = p.oldest
			}
			if p.err != nil {
				return p.err
			}
		}
	}
	for _, w := range workers {
		c.v.report.Unknown = unknownNames(c.v.report.Unknown, w.scanner.Unknown)
	}
	return nil
}

// take adds a segment's contents to the report.
func (c *contents) take(m signed, p part) error {
	r := &c.v.report
	if p.count > 0 && p.first <= r.Last {
		return verdict.Broken(verdict.ErrContradiction, p.first, p.file, "the seq before is %d", r.Last)
	}
	if p.count > 0 && p.first > r.Last+1 {
		c.holes = append(c.holes, hole{r.Last + 1, p.first - 1, p.file})
	}
	first, last := r.Last+1, r.Last
	if p.count > 0 {
		first, last = p.first, p.last
	}
	if first != m.First || last != m.Last {
		return verdict.Broken(verdict.ErrContradiction, 0, p.file, "it holds seqs %d to %d, the manifest says %d to %d", first, last, m.First, m.Last)
	}
	if p.strange == nil && !maps.Equal(p.losses, m.Losses) {
		return verdict.Broken(verdict.ErrContradiction, 0, p.file, "gap records declare losses %v, the manifest %v", p.losses, m.Losses)
	}
	if m.Segment == 0 {
		if err := c.retired(p.began); err != nil {
			return err
		}
	}
	c.holes = append(c.holes, p.holes...)
	for _, g := range p.gaps {
		r.Gaps = append(r.Gaps, g.Gap)
		if g.excuse {
			c.excuses = append(c.excuses, g.Gap)
		}
	}
	for _, claim := range p.copies {
		c.copies.take(claim)
	}
	if p.start != nil && !c.started {
		c.started, r.Parent = true, p.start.Parent
	}
	if p.strange != nil {
		c.strange = true
		c.v.doubt(p.strange)
	}
	c.count(m, last, p.losses)
	if err := c.kept(p); err != nil {
		return err
	}
	return c.gone(p)
}

func (c *contents) count(m signed, last uint64, losses wal.Losses) {
	r := &c.v.report
	if m.Count > 0 {
		r.First = cmp.Or(r.First, m.First)
		r.Segments++
	}
	r.Records += m.Count
	if pause := m.SealedAt.Sub(r.Sealed); m.Segment > 0 && pause > r.Pause {
		r.Pause, r.Paused = pause, r.Last
	}
	r.Sealed = m.SealedAt
	r.Last, r.HoldsTo = last, last
	r.Head, r.Closing, r.Facts, r.KeyName = m.digest, m.Closing, m.Facts, m.key.name
	for stage, l := range losses {
		sum := r.Losses[stage]
		sum.Gaps += l.Gaps
		sum.Events += l.Events
		sum.Bytes += l.Bytes
		r.Losses[stage] = sum
	}
}

// retired checks that the run did not begin after the retirement of a key that signed it.
func (c *contents) retired(began time.Time) error {
	for _, m := range c.v.manifests {
		r, ok := c.v.ring.next[m.key]
		if ok && began.After(r.Time.Add(rotationGrace)) {
			return verdict.Broken(verdict.ErrRetired, 0, m.file, "%s was retired at %s, the run began at %s",
				r.Old, r.Time.Format(time.RFC3339), began.Format(time.RFC3339))
		}
	}
	return nil
}

// end checks the run as a whole: that holes are declared, and that
// there is an end and nothing after it.
func (c *contents) end() error {
	if len(c.v.manifests) == 0 {
		return nil
	}
	if h, ok := undeclared(c.holes, c.excuses); ok && !c.strange {
		return verdict.Broken(verdict.ErrHole, h.first, h.file, "seqs %d to %d", h.first, h.last)
	}
	if err := c.surplusSegments(); err != nil {
		return err
	}
	if err := c.closed(c.v.manifests[len(c.v.manifests)-1]); err != nil {
		return err
	}
	if err := c.selected(); err != nil {
		return err
	}
	return c.idleErasures()
}

// surplusSegments finds segments without a manifest.
func (c *contents) surplusSegments() error {
	segments, err := c.v.evidence.list(wal.SegmentSuffix)
	if err != nil {
		return verdict.Open(verdict.ErrUnreadable, "", "%v", err)
	}
	last := c.v.manifests[len(c.v.manifests)-1]
	known := c.v.firsts()
	for _, first := range segments {
		file := wal.FileName(first, wal.SegmentSuffix)
		switch {
		case known[first]:
		case last.Closing != wal.Open:
			return verdict.Broken(verdict.ErrAppended, first, file, "the record was closed with seq %d", last.Last)
		case first <= last.Last:
			return verdict.Broken(verdict.ErrInserted, first, file, "no manifest signs for it")
		}
	}
	return nil
}

func (c *contents) closed(last signed) error {
	switch {
	case last.Closing != wal.Open:
		return nil
	case c.v.evidence.Live:
		c.v.doubt(verdict.Open(verdict.ErrLive, "", "it holds up to seq %d", c.v.report.HoldsTo))
		return nil
	}
	return verdict.Broken(verdict.ErrTailCut, 0, "", "it holds up to seq %d; what came after was removed, or the run died and was not recovered",
		c.v.report.HoldsTo)
}

type hole struct {
	first, last uint64
	file        string
}

// undeclared returns the first hole, of holes in order of seq, that no gap covers completely. It sorts the gaps.
func undeclared(holes []hole, gaps []audit.Gap) (h hole, ok bool) {
	slices.SortFunc(gaps, func(a, b audit.Gap) int { return cmp.Compare(a.First, b.First) })
	var last uint64 // the last seq covered by a gap that begins no later than the hole
	for _, h := range holes {
		for ; len(gaps) > 0 && gaps[0].First <= h.first; gaps = gaps[1:] {
			last = max(last, gaps[0].Last)
		}
		if last < h.last {
			return h, true
		}
	}
	return hole{}, false
}

// unknownNames merges the unknown names of several scanners.
func unknownNames(all []string, more map[string]struct{}) []string {
	for name := range more {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	slices.SortFunc(all, strings.Compare)
	return all[:min(len(all), schema.MaxUnknown)]
}

// kept adds the withheld records of a segment.
func (c *contents) kept(p part) error {
	for _, f := range p.withheld {
		if c.v.report.Selected == nil {
			return verdict.Broken(verdict.ErrWithheldUndeclared, f.seq, p.file, "")
		}
		c.withheld.Add(f.seq, f.leaf)
		if e := c.v.erasures[f.seq]; e != nil {
			if e.Leaf != f.leaf {
				return verdict.Broken(verdict.ErrErasureMismatch, f.seq, e.file, "it names leaf %s, the record's is %s", e.Leaf, f.leaf)
			}
			e.seen = true
			c.v.report.Asked = append(c.v.report.Asked, e.Erasure)
		}
	}
	c.v.report.Withheld = c.withheld.Count
	return nil
}

// selected compares all withheld records with the statement.
func (c *contents) selected() error {
	s := c.v.report.Selected
	switch {
	case s == nil:
		return nil
	case s.Records != c.v.report.Records || s.Withheld != c.withheld.Count:
		return verdict.Broken(verdict.ErrSelectionMismatch, 0, selectionFile, "it withholds %d of %d records, here are %d withheld of %d",
			s.Withheld, s.Records, c.withheld.Count, c.v.report.Records)
	case s.Digest != c.withheld.Digest():
		return verdict.Broken(verdict.ErrSelectionMismatch, 0, selectionFile, "the withheld records are not the stated ones")
	}
	return nil
}

// gone compares the erased records of a segment with the statements.
func (c *contents) gone(p part) error {
	for _, seq := range p.present {
		e := c.v.erasures[seq]
		e.seen = true
		c.v.report.Asked = append(c.v.report.Asked, e.Erasure)
	}
	for _, f := range p.erased {
		e := c.v.erasures[f.seq]
		if e == nil {
			return verdict.Broken(verdict.ErrErasureUndeclared, f.seq, p.file, "")
		}
		if e.Leaf != f.leaf {
			return verdict.Broken(verdict.ErrErasureMismatch, f.seq, e.file, "it names leaf %s, the record's is %s", e.Leaf, f.leaf)
		}
		e.seen, e.done = true, true
		c.v.report.Erasures = append(c.v.report.Erasures, e.Erasure)
	}
	return nil
}

// idleErasures finds statements about records that the run does not have.
func (c *contents) idleErasures() error {
	for _, seq := range c.v.erasures.seqs() {
		if e := c.v.erasures[seq]; !e.seen && !c.v.evidence.Live {
			return verdict.Broken(verdict.ErrErasureMismatch, seq, e.file, "the run has no such record")
		}
	}
	return nil
}

// copied reports whether the copies match their lists. If a record cannot be read, a list may be incomplete.
func (c *contents) copied(context.Context) error {
	c.v.report.Copies = c.copies.ended
	gone := c.strange || c.v.report.Withheld > 0 || len(c.holes) > 0
	for _, e := range c.v.report.Erasures {
		gone = gone || e.Kind == audit.KindCopy
	}
	if c.copies.wrong == nil || gone {
		return nil
	}
	return c.copies.wrong
}
