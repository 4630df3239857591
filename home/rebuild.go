package home

import (
	"context"
	"fmt"
	"iter"
	"os"

	"github.com/custody-project/custody/audit/store"
	"github.com/custody-project/custody/audit/store/sqlite"
	"github.com/custody-project/custody/audit/wal"
)

// Rebuild makes a new store from all logs, keeps the old one beside it with the ending ".damaged", and returns the
// number of segments in the new one. It refuses while a run goes on, whose process has the old store open, and when
// retention has removed segments here.
func (h *Home) Rebuild(ctx context.Context) (int, error) {
	unlock, err := h.readRuns(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	runs, err := h.logs()
	if err != nil {
		return 0, err
	}
	for _, run := range runs {
		if wal.Locked(h.RunDir(run)) {
			return 0, fmt.Errorf("rebuild store: run %s goes on: wait for its end", run)
		}
		if h.IsPruned(run) {
			return 0, fmt.Errorf("rebuild store: retention removed segments of run %s, which only the store has: a new one would lack them; "+
				"custody ship --differ mends the rest", run)
		}
	}
	return sqlite.Rebuild(ctx, h.storePath(), h.segments(ctx, runs))
}

// logs names the runs that have a log here, oldest first.
func (h *Home) logs() ([]string, error) {
	entries, err := os.ReadDir(h.path("runs"))
	if err != nil {
		return nil, err
	}
	var runs []string
	for _, e := range entries {
		if e.IsDir() && isRun(e.Name()) {
			runs = append(runs, e.Name())
		}
	}
	return runs, nil
}

// segments yields the sealed segments of runs.
func (h *Home) segments(ctx context.Context, runs []string) iter.Seq2[store.Segment, error] {
	return func(yield func(store.Segment, error) bool) {
		for _, run := range runs {
			more := true
			f := follower{home: h, run: run}
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

// storedSegments yields the segments of runs as the store's manifests and rows give them.
func (h *Home) storedSegments(ctx context.Context, runs []string) iter.Seq2[store.Segment, error] {
	return func(yield func(store.Segment, error) bool) {
		st, err := h.Store(ctx)
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
				if seg, err := h.storedSegment(ctx, st, m); !yield(seg, err) || err != nil {
					return
				}
			}
		}
	}
}

func (h *Home) storedSegment(ctx context.Context, st store.Store, stored store.Manifest) (store.Segment, error) {
	m, host, err := h.openManifest(stored.Bytes)
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
