package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/sqlite"
)

// The store that is searched: runs of this many events, an hour each, over the last days.
const (
	runEvents     = 20_000
	segmentEvents = 10_000
	queryTimes    = 15
)

// query measures the three questions that people ask of a large store.
func (r *report) query(ctx context.Context, dir string) error {
	st, err := sqlite.Open(ctx, filepath.Join(dir, "custody.db"))
	if err != nil {
		return err
	}
	defer st.Close()
	return r.ask(ctx, "SQLite", st)
}

// ask fills a store and asks it.
func (r *report) ask(ctx context.Context, name string, st store.Store) error {
	began := time.Now()
	runs := max(1, r.queried/runEvents)
	for i := range runs {
		if err := st.Ingest(ctx, segmentsOf(i, runs)...); err != nil {
			return err
		}
	}
	r.add(fmt.Sprintf("%s, %s events taken in", name, count(runs*runEvents)), perSecond(runs*runEvents, time.Since(began), "events"), "", "")
	middle := runs / 2
	for _, q := range []struct {
		what string
		rows func() iter.Seq2[store.Row, error]
	}{
		{"this run, page 1 (100 rows)", func() iter.Seq2[store.Row, error] {
			return st.Records(ctx, store.Query{Run: queriedRun(middle), Limit: 100})
		}},
		{"this hash, all runs", func() iter.Seq2[store.Row, error] {
			return st.Search(ctx, store.Search{Hash: hashOf(middle*runEvents + 1)})
		}},
		{"this host, last 24 h (first 100)", func() iter.Seq2[store.Row, error] {
			return st.Search(ctx, store.Search{Host: hostOf(7), From: time.Now().Add(-24 * time.Hour), Limit: 100})
		}},
	} {
		took, rows, err := timed(q.rows)
		if err != nil {
			return err
		}
		p50, p99, err := percentiles(took)
		if err != nil {
			return err
		}
		r.add(fmt.Sprintf("%s of %s events: %s", name, count(runs*runEvents), q.what), "p50 "+ms(p50)+", worst "+ms(p99), fmt.Sprintf("%d rows", rows), "")
	}
	return nil
}

// timed reads all rows, several times.
func timed(rows func() iter.Seq2[store.Row, error]) (took []time.Duration, n int, err error) {
	for range queryTimes {
		began := time.Now()
		n = 0
		for _, err := range rows() {
			if err != nil {
				return nil, 0, err
			}
			n++
		}
		took = append(took, time.Since(began))
	}
	if n == 0 {
		return nil, 0, fmt.Errorf("nothing was found")
	}
	return took, n, nil
}

func queriedRun(i int) string { return fmt.Sprintf("r-loadtest-%06d", i) }

// segmentsOf makes run i of n, an hour after the one before; the last ends now.
func segmentsOf(i, n int) (segs []store.Segment) {
	run := queriedRun(i)
	start := time.Now().Add(-time.Duration(n-i) * time.Hour)
	for first := 0; first < runEvents; first += segmentEvents {
		seg := store.Segment{Run: run, Host: "custody-loadtest", Index: uint64(first / segmentEvents),
			First: uint64(first + 1), Last: uint64(first + segmentEvents)}
		for j := range segmentEvents {
			n := i*runEvents + first + j
			ev := made(n, start.Add(time.Duration(first+j)*time.Hour/runEvents))
			if first+j == 0 {
				ev = started("", start)
			}
			seg.Frames = append(seg.Frames, frameOf(run, uint64(first+j+1), ev))
		}
		seg.Manifest = fmt.Appendf(nil, "made up %s %d", run, seg.Index)
		segs = append(segs, seg)
	}
	return segs
}

func frameOf(run string, seq uint64, ev audit.Event) store.Frame {
	body, err := json.Marshal(audit.Record{V: audit.Version, Run: run, Seq: seq, Event: ev})
	if err != nil {
		panic(err) // an event of our own making
	}
	f := store.Frame{Seq: seq, Body: body}
	copy(f.Salt[:], hashOf(int(seq)))
	return f
}
