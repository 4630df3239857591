package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/custody-project/custody/audit/store"
)

const segmentColumns = "tenant, host, run, idx, first, last, count, root, digest, manifest, ingested, first_time, last_seq, " +
	"start, end, project, template, tier, mode, result, exit_code, findings, gaps, lost"

// maxStamps is how often a marker is stamped anew before the server counts as too slow.
const maxStamps = 5

// mark writes the markers that the batch lacks. missing tells how many records of each segment were.
//
// A stamp is good if the marker was visible long before the feed gets there: within half
// of Settle, by this process's clock. A slower commit is stamped again, and so is
// a marker that a killed process may have left too late. The feed then has it twice.
func (s *Store) mark(ctx context.Context, batch []*segment, missing []int, k *known) error {
	var fresh, again []*segment
	for i, in := range batch {
		own := k.own(in)
		switch {
		case own == nil && (missing[i] > 0 || k.needsMarker(in)):
			fresh = append(fresh, in)
		case own != nil && (missing[i] > 0 || !own.settling):
			again = append(again, in)
		}
	}
	if len(fresh)+len(again) == 0 {
		return nil
	}
	sums, err := s.summaries(ctx, fresh, batch, missing)
	if err != nil {
		return err
	}
	for range maxStamps {
		begin := time.Now()
		stamp, err := s.stamp(ctx)
		if err != nil {
			return err
		}
		if err := s.insertMarkers(ctx, fresh, sums, stamp); err != nil {
			return err
		}
		if err := s.stampAgain(ctx, again, stamp); err != nil {
			return err
		}
		if time.Since(begin) < s.settle/2 {
			return nil
		}
	}
	return fmt.Errorf("the server takes longer than %s to commit a row: the feed needs a greater Options.Settle", s.settle/2)
}

// stamp is the time of the server, and never before the latest stamp: a clock that
// was set back must not put segments where the feed has already been.
func (s *Store) stamp(ctx context.Context) (now time.Time, err error) {
	err = s.db.QueryRow(ctx, "SELECT greatest(now64(6, 'UTC'), max(ingested) + toIntervalMicrosecond(1)) FROM segments").Scan(&now)
	return now, err
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

// rowsBefore says whether some records of in were there before it.
func rowsBefore(in *segment, batch []*segment, missing []int) bool {
	for i, other := range batch {
		if other == in {
			return missing[i] < len(in.Frames)
		}
	}
	return true
}

func (s *Store) insertMarkers(ctx context.Context, segs []*segment, sums []store.Run, stamp time.Time) error {
	if len(segs) == 0 {
		return nil
	}
	batch, err := s.db.PrepareBatch(ctx, "INSERT INTO segments ("+segmentColumns+")")
	if err != nil {
		return err
	}
	for i, in := range segs {
		r := sums[i]
		err := batch.Append(in.Tenant, in.Host, in.Run, in.Index, in.First, in.Last, uint64(len(in.Frames)), in.rootText,
			string(in.digest[:]), string(in.Manifest), stamp, moment(r.FirstTime), r.LastSeq, moment(r.Start), r.End,
			r.Project, r.Template, r.Tier, r.Mode, string(r.Result), number(r.ExitCode), r.Findings, r.Gaps, r.Lost)
		if err != nil {
			return errors.Join(err, batch.Abort())
		}
	}
	return batch.Send()
}

// stampAgain moves segments' rows to another place in the feed and leaves them what they are.
func (s *Store) stampAgain(ctx context.Context, segs []*segment, stamp time.Time) error {
	for _, in := range segs {
		err := s.exec(ctx, fmt.Sprintf("INSERT INTO segments (%s) SELECT %s FROM segments FINAL WHERE %s", segmentColumns,
			strings.Replace(segmentColumns, "ingested", fmt.Sprintf("fromUnixTimestamp64Micro(toInt64(%d), 'UTC')", stamp.UnixMicro()), 1), in.where()))
		if err != nil {
			return err
		}
	}
	return nil
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

// where is the condition for the segment's row.
func (in *segment) where() string {
	return fmt.Sprintf("tenant = %s AND run = %s AND idx = %d AND first = %d AND last = %d AND digest = unhex('%x')",
		quote(in.Tenant), quote(in.Run), in.Index, in.First, in.Last, in.digest)
}
