package host

import (
	"context"
	"fmt"
	"iter"

	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/sqlite"
)

// Rebuild builds a new store from all logs, renames the old one with the suffix ".damaged", and returns the
// number of segments in the new one. It refuses if a run is live, because its process has the old store open, or if
// retention has removed segments here.
func (s Shipping) Rebuild(ctx context.Context) (int, error) {
	unlock, err := s.host.Deletions().readRuns(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	runs, err := s.host.RunLogs().all()
	if err != nil {
		return 0, err
	}
	for _, run := range runs {
		if wal.Locked(s.host.RunDir(run)) {
			return 0, fmt.Errorf("rebuild store: run %s is live: wait for its end", run)
		}
		if s.host.Retention().IsPruned(run) {
			return 0, fmt.Errorf("rebuild store: retention removed segments of run %s, which only the store has: a new store would lack them; "+
				"custody ship --differ repairs the other runs", run)
		}
	}
	return sqlite.Rebuild(ctx, s.host.storePath(), s.segments(ctx, runs))
}

// segments yields the sealed segments of runs from their logs.
func (sh Shipping) segments(ctx context.Context, runs []string) iter.Seq2[store.Segment, error] {
	return func(yield func(store.Segment, error) bool) {
		for _, run := range runs {
			more := true
			f := follower{host: sh.host, run: run}
			err := f.each(ctx, func(_ context.Context, s store.Segment) error {
				if more = yield(s, nil); !more {
					return context.Canceled
				}
				return nil
			})
			if !more || err != nil && !yield(store.Segment{}, err) {
				return
			}
		}
	}
}

// storedSegments yields the segments of runs from the store's manifests and rows.
func (s Shipping) storedSegments(ctx context.Context, runs []string) iter.Seq2[store.Segment, error] {
	return func(yield func(store.Segment, error) bool) {
		st, err := s.host.Store(ctx)
		if err != nil {
			yield(store.Segment{}, err)
			return
		}
		defer st.Close()
		for _, run := range runs {
			manifests, err := st.Manifests(ctx, "", run)
			if err != nil {
				yield(store.Segment{}, err)
				return
			}
			for _, m := range manifests {
				if seg, err := s.storedSegment(ctx, st, m); !yield(seg, err) || err != nil {
					return
				}
			}
		}
	}
}

func (s Shipping) storedSegment(ctx context.Context, st store.Store, stored store.Manifest) (store.Segment, error) {
	m, host, err := s.host.RunLogs().openManifest(stored.Bytes)
	if err != nil {
		return store.Segment{}, err
	}
	seg := store.Segment{
		Tenant: m.Tenant, Host: host, Run: m.Run, Index: m.Segment, First: m.First, Last: m.Last, Root: m.Root, Manifest: stored.Bytes,
	}
	if m.Count == 0 {
		return seg, nil
	}
	for row, err := range segmentRows(ctx, st, store.Run{ID: m.Run}, store.Manifest{First: m.First, Count: m.Count}) {
		if err != nil {
			return seg, err
		}
		seg.Frames = append(seg.Frames, store.Frame(row))
	}
	return seg, nil
}
