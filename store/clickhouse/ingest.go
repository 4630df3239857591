package clickhouse

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/custody-project/custody/store"
)

// segment is a segment during ingest, with values computed from its frames.
type segment struct {
	store.Segment
	rootText string   // of the row, as a FixedString
	digest   [32]byte // of the manifest
	frames   [32]byte // of the seqs and leaves
	heads    []store.Head
	leaves   [][32]byte
}

// Ingest implements store.Store. It takes a few round trips regardless of the number of
// segments, so pass it many: 10,000 to 100,000 records, or those of a second.
func (s *Store) Ingest(ctx context.Context, segs ...store.Segment) error {
	batch := make([]*segment, 0, len(segs))
	for _, seg := range segs {
		in, err := prepare(seg)
		if err != nil {
			return fmt.Errorf("ingest: run %.140q: %w", seg.Run, err)
		}
		batch = append(batch, in)
	}
	if len(batch) == 0 {
		return nil
	}
	if err := s.ingester.ingest(ctx, batch); err != nil {
		return fmt.Errorf("ingest: %w", err)
	}
	return nil
}

// ingester ingests segments: see Store.
type ingester struct {
	lookup     lookup
	insert     inserter
	feed       feed
	summarizer summarizer
	eraser     eraser
}

func (g ingester) ingest(ctx context.Context, batch []*segment) error {
	k, err := g.lookup.look(ctx, batch)
	if err != nil {
		return err
	}
	for _, in := range batch {
		in.erase(k.erased)
	}
	missing, b, err := k.sort(batch)
	if err != nil {
		return err
	}
	if len(b.seq) > 0 {
		if err := g.insert.records(ctx, b, b.token()); err != nil {
			return err
		}
		if err := g.verify(ctx, batch, k, b); err != nil {
			return err
		}
	}
	marked, err := g.mark(ctx, batch, missing, k)
	if err != nil {
		return err
	}
	return g.eraser.eraseLate(ctx, batch, k, marked)
}

// prepare checks a segment and computes what is needed from its frames.
func prepare(seg store.Segment) (*segment, error) {
	if err := seg.Check(); err != nil {
		return nil, err
	}
	heads, err := seg.Heads()
	if err != nil {
		return nil, err
	}
	in := &segment{Segment: seg, rootText: string(seg.Root[:]), heads: heads, leaves: make([][32]byte, len(seg.Frames))}
	in.digest = digest(seg.Manifest)
	if len(seg.Frames) == 0 { // the bounds have no meaning, and are part of the row's key
		in.First, in.Last = 0, 0
	}
	frames := sha256.New()
	var number [8]byte
	for i, f := range seg.Frames {
		in.leaves[i] = f.Leaf()
		binary.BigEndian.PutUint64(number[:], f.Seq)
		frames.Write(number[:])
		frames.Write(in.leaves[i][:])
	}
	frames.Sum(in.frames[:0])
	return in, nil
}

// erase replaces frames of records that were erased since they were sealed.
func (in *segment) erase(gone map[place]bool) {
	if len(gone) == 0 {
		return
	}
	in.Frames = slices.Clone(in.Frames)
	for i, f := range in.Frames {
		if gone[place{in.Tenant, in.Run, f.Seq}] {
			in.Frames[i] = store.Frame{Seq: f.Seq, Erased: &in.leaves[i]}
			in.heads[i] = store.Head{Run: in.Run, Seq: f.Seq, Time: in.heads[i].Time}
		}
	}
}

// sort returns the rows that the store lacks, and how many of them belong to each segment.
func (k *known) sort(batch []*segment) (missing []int, b *rowBuffer, err error) {
	b, missing = new(rowBuffer), make([]int, len(batch))
	total := 0
	for _, in := range batch {
		total += len(in.Frames)
	}
	b.grow(total)
	compare, remember := len(k.leaves) > 0, !disjoint(batch)
	for n, in := range batch {
		for i, f := range in.Frames {
			at := place{in.Tenant, in.Run, f.Seq}
			if compare || remember {
				leaf, ok := k.leaves[at]
				if ok && leaf != in.leaves[i] {
					return nil, nil, fmt.Errorf("run %s record %d: %w", in.Run, f.Seq, store.ErrConflict)
				}
				if ok {
					continue
				}
			}
			if remember {
				k.leaves[at] = in.leaves[i]
			}
			b.add(in, f, in.heads[i], in.leaves[i])
			missing[n]++
		}
	}
	return missing, b, nil
}

// verify checks that the inserted rows exist, and no others with their seqs.
func (g ingester) verify(ctx context.Context, batch []*segment, k *known, b *rowBuffer) error {
	whole, err := g.lookup.fingerprints(ctx, batch)
	if err != nil || maps.Equal(whole, wanted(batch)) {
		return err
	}
	for again := false; ; again = true {
		have, err := g.lookup.readLeaves(ctx, batch)
		if err != nil {
			return err
		}
		missing, err := compare(batch, have, k.marked)
		if err != nil || !missing {
			return err
		}
		if again {
			return errors.New("the server accepted rows and does not have them")
		}
		if err := g.insert.records(ctx, b, ""); err != nil { // it remembers the token, but does not have the rows
			return err
		}
	}
}

// compare reports whether the database lacks records of the batch. It fails if there are different ones with their
// seqs, unless the segment was acknowledged before them.
func compare(batch []*segment, have map[place][][32]byte, taken func(*segment) bool) (missing bool, err error) {
	for _, in := range batch {
		for i, f := range in.Frames {
			leaves := have[place{in.Tenant, in.Run, f.Seq}]
			own := slices.Contains(leaves, in.leaves[i])
			missing = missing || !own
			if len(leaves) > 1 || len(leaves) == 1 && !own {
				if !own || !taken(in) {
					return false, fmt.Errorf("run %s record %d: %w", in.Run, f.Seq, store.ErrConflict)
				}
			}
		}
	}
	return missing, nil
}
