package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/replay"
)

// How much is recorded while freshness is measured.
const (
	freshFor  = 12 * time.Second
	freshRate = 500 // events a second
)

// arrivals is where a timeline that is followed is written to. It notes when each record came.
type arrivals struct {
	mu      sync.Mutex // guards all below
	partial []byte
	late    []time.Duration
	err     error
}

// Write implements io.Writer.
func (a *arrivals) Write(p []byte) (int, error) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.partial = append(a.partial, p...)
	for {
		line, rest, whole := bytes.Cut(a.partial, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		var r audit.Record
		if err := json.Unmarshal(line, &r); err != nil {
			a.err = err
		} else if r.Kind != audit.KindRun {
			a.late = append(a.late, now.Sub(r.Time))
		}
		a.partial = rest
	}
}

// fresh measures how long it takes from an event until `timeline --follow` has
// written its line, with events at a steady rate.
func (r *report) fresh(ctx context.Context, dir string) error {
	h, err := host.Open(dir)
	if err != nil {
		return err
	}
	red, err := newRedactor()
	if err != nil {
		return err
	}
	run, err := begin(ctx, h, red)
	if err != nil {
		return err
	}
	var seen arrivals
	following := make(chan error, 1)
	go func() { following <- follow(ctx, h, run.ID, &seen) }()
	began := time.Now()
	for n := 0; time.Since(began) < freshFor; n++ {
		time.Sleep(time.Until(began.Add(time.Duration(n) * time.Second / freshRate)))
		if _, err := run.Record(ctx, made(n, time.Now())); err != nil {
			return err
		}
	}
	if _, err := run.Record(ctx, ended(time.Now(), time.Since(began))); err != nil {
		return err
	}
	if record, store := run.Close(ctx, wal.Sealed); record != nil || store != nil {
		return fmt.Errorf("close: record %w, store %w", record, store)
	}
	if err := <-following; err != nil {
		return err
	}
	p50, p99, err := percentiles(seen.late)
	if err != nil {
		return err
	}
	r.add("event to visible in timeline --follow, p50 / p99", ms(p50)+" / "+ms(p99), fmt.Sprintf("%d events/s", freshRate), "")
	return seen.err
}

// follow waits for the run to be in the store and writes its timeline until it ends.
func follow(ctx context.Context, h *host.Host, run string, to *arrivals) error {
	st, err := h.Store(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	for {
		if found, err := st.Run(ctx, "", run); err == nil {
			ahead, err := h.Ahead(ctx, st, found) // as timeline --follow does
			if err != nil {
				return err
			}
			defer ahead.Close()
			return replay.FollowJSON(ctx, to, ahead, run, replay.Options{})
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
