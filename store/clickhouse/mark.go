package clickhouse

import (
	"context"
	"errors"
	"time"

	driver "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/custody-project/custody/store"
)

const segmentColumns = "tenant, host, run, idx, first, last, count, root, digest, frames, manifest, first_time, last_seq, " +
	"start, end, project, template, tier, mode, result, exit_code, findings, gaps, lost"

// mark puts the segments that are new into the feed and writes their markers. missing has how many records of each were
// new.
func (s *Store) mark(ctx context.Context, batch []*segment, missing []int, k *known) (marked bool, err error) {
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
	sums, err := s.summaries(ctx, unmarked, batch, missing)
	if err != nil {
		return false, err
	}
	if err := s.feedIn(ctx, fresh); err != nil {
		return false, err
	}
	return true, s.insertMarkers(ctx, unmarked, sums)
}

// summaries returns what each of the fresh segments adds to the summary of its run. A frame that
// comes erased may be whole in the store, so that then its rows are asked.
func (s *Store) summaries(ctx context.Context, fresh, batch []*segment, missing []int) ([]store.Run, error) {
	sums := make([]store.Run, len(fresh))
	for i, in := range fresh {
		if erased(in) && rowsBefore(in, batch, missing) {
			sum, err := s.fold(ctx, in.key(), in.First, in.Last)
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

// rowsBefore reports whether some records of in were there before it.
func rowsBefore(in *segment, batch []*segment, missing []int) bool {
	for i, other := range batch {
		if other == in {
			return missing[i] < len(in.Frames)
		}
	}
	return true
}

func (s *Store) insertMarkers(ctx context.Context, segs []*segment, sums []store.Run) error {
	if len(segs) == 0 {
		return nil
	}
	// The server would take a marker that it has seen before for a repeat, though it is gone since.
	ctx = driver.Context(ctx, driver.WithSettings(unheardOf()))
	batch, err := s.db.PrepareBatch(ctx, "INSERT INTO segments ("+segmentColumns+")")
	if err != nil {
		return err
	}
	for i, in := range segs {
		r := sums[i]
		err := batch.Append(in.Tenant, in.Host, in.Run, in.Index, in.First, in.Last, uint64(len(in.Frames)), in.rootText,
			string(in.digest[:]), string(in.frames[:]), string(in.Manifest), moment(r.FirstTime), r.LastSeq, moment(r.Start), r.End,
			r.Project, r.Template, r.Tier, r.Mode, string(r.Result), number(r.ExitCode), r.Findings, r.Gaps, r.Lost)
		if err != nil {
			return errors.Join(err, batch.Abort())
		}
	}
	return batch.Send()
}

// moment is nil for a time that is not there.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func number(n *int) *int64 {
	if n == nil {
		return nil
	}
	wide := int64(*n)
	return &wide
}
