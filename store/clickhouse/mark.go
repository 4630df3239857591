package clickhouse

import (
	"context"

	"github.com/custody-project/custody/store"
)

// mark adds the new segments to the feed and writes their markers. missing is the number of new records of each
// segment.
func (g ingester) mark(ctx context.Context, batch []*segment, missing []int, k *known) (marked bool, err error) {
	var fresh, unmarked []*segment
	for i, in := range batch {
		has := k.marked(in)
		if missing[i] == 0 && (has || !k.needsMarker(in)) {
			continue
		}
		fresh = append(fresh, in)
		if !has {
			unmarked = append(unmarked, in)
			k.add(in)
		}
	}
	if len(fresh) == 0 {
		return false, nil
	}
	sums, err := g.summaries(ctx, unmarked, batch, missing)
	if err != nil {
		return false, err
	}
	if err := g.feed.add(ctx, fresh); err != nil {
		return false, err
	}
	return true, g.insert.markers(ctx, unmarked, sums)
}

// summaries returns the contribution of each new segment to the summary of its run. A frame that
// arrives erased may be complete in the store, so that then its rows are read.
func (g ingester) summaries(ctx context.Context, fresh, batch []*segment, missing []int) ([]store.Run, error) {
	sums := make([]store.Run, len(fresh))
	for i, in := range fresh {
		if erased(in) && rowsBefore(in, batch, missing) {
			sum, err := g.summarizer.fold(ctx, in.key(), in.First, in.Last)
			if err != nil {
				return nil, err
			}
			sums[i] = sum
			continue
		}
		sums[i] = store.NewRun(in.Run)
		for _, h := range in.heads {
			sums[i].Add(h)
		}
	}
	return sums, nil
}

func erased(in *segment) bool {
	for _, f := range in.Frames {
		if f.Erased != nil {
			return true
		}
	}
	return false
}

// rowsBefore reports whether some records of in existed before it.
func rowsBefore(in *segment, batch []*segment, missing []int) bool {
	for i, other := range batch {
		if other == in {
			return missing[i] < len(in.Frames)
		}
	}
	return true
}
