package api

import (
	"context"
	"errors"
	"slices"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

// anyTag asks for records that have notes, whatever their tags.
const anyTag = "*"

// tagged fills p with what matches and has a note with the tag: behind seq, or back from before it, where 0 stands for the run's end.
func (h *recordsHandler) tagged(ctx context.Context, p *page, run store.Run, f replay.Filter, seq uint64, tag string, back bool) error {
	if tag != anyTag && !audit.ValidTag(tag) {
		return bad("give a tag of a note, or "+anyTag+" for records with any", "%.60q is not a tag", tag)
	}
	notes, _, _, err := h.notes.on(ctx, run)
	if err != nil {
		return err
	}
	p.begin, p.last = seq, seq
	if back && seq == 0 {
		p.begin, p.last = run.LastSeq+1, run.LastSeq+1
	}
	for _, at := range seqsTagged(notes, tag, back) {
		if back && at >= p.last || !back && at <= p.last {
			continue
		}
		row, err := recordAt(ctx, h.source, run, at)
		if errors.Is(err, store.ErrNoRecord) {
			continue
		}
		if err != nil {
			return err
		}
		p.last = at
		if replay.Match(f, row) && !p.take(row) {
			p.more = true
			return nil
		}
	}
	return nil
}

// seqsTagged returns the seqs of records that have a note with the tag, in order.
func seqsTagged(notes []replay.Note, tag string, back bool) (seqs []uint64) {
	for _, n := range notes {
		if n.Seq != 0 && n.Withdrawn == nil && (tag == anyTag || slices.Contains(n.Tags, tag)) {
			seqs = append(seqs, n.Seq)
		}
	}
	slices.Sort(seqs)
	seqs = slices.Compact(seqs)
	if back {
		slices.Reverse(seqs)
	}
	return seqs
}
