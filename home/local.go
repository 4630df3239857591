package home

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/store"
	"github.com/custody-project/custody/audit/wal"
)

// Reader is what shows runs: a store, or the logs on this host.
type Reader interface {
	Runs(ctx context.Context, f store.Filter) ([]store.Run, error)
	Run(ctx context.Context, tenant, name string) (store.Run, error)
	Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error]
	Close() error
}

// Reader opens what runs are shown from: the store, or the logs here where the store
// is elsewhere and host.yaml does not say how to read it.
func (h *Home) Reader(ctx context.Context) (Reader, error) {
	if h.config.Transport != nil && h.config.Store == "" {
		return h.Logs(), nil
	}
	return h.Store(ctx)
}

// Logs shows the runs of this host as their logs have them, with what is not sealed yet.
func (h *Home) Logs() Reader { return logReader{h} }

// Live says whether a process on this host writes the run.
func (h *Home) Live(run string) bool { return h.HasLog(run) && wal.Locked(h.RunDir(run)) }

// logReader reads logs as a store would be read. Finding runs takes time in proportion to all logs.
type logReader struct{ home *Home }

// Close does nothing: each call opens what it reads.
func (r logReader) Close() error { return nil }

// Runs implements Reader.
func (r logReader) Runs(ctx context.Context, f store.Filter) ([]store.Run, error) {
	ids, err := r.home.logs()
	if err != nil {
		return nil, err
	}
	slices.Reverse(ids)
	var runs []store.Run
	for _, id := range ids {
		run, err := r.summary(ctx, id)
		switch {
		case err != nil:
			return nil, err
		case run.Events == 0, f.Project != "" && run.Project != f.Project, f.Status != "" && run.Status != f.Status:
			continue
		}
		if runs = append(runs, run); f.Limit > 0 && len(runs) == f.Limit {
			break
		}
	}
	return runs, nil
}

// Run implements Reader.
func (r logReader) Run(ctx context.Context, _, name string) (store.Run, error) {
	ids, err := r.home.logs()
	if err != nil {
		return store.Run{}, err
	}
	var found []string
	for _, id := range ids {
		if strings.HasPrefix(id, name) && name != "" {
			found = append(found, id)
		}
	}
	switch {
	case name == store.Last && len(ids) > 0:
		found = ids[len(ids)-1:]
	case slices.Contains(found, name):
		found = []string{name}
	}
	switch len(found) {
	case 0:
		return store.Run{}, fmt.Errorf("%w: %.140q", store.ErrNotFound, name)
	case 1:
		run, err := r.summary(ctx, found[0])
		run.Start = run.Began()
		return run, err
	}
	return store.Run{}, fmt.Errorf("%w: %.140q", store.ErrAmbiguous, name)
}

func (r logReader) summary(ctx context.Context, id string) (store.Run, error) {
	run := store.NewRun(id)
	for row, err := range r.Records(ctx, store.Query{Run: id}) {
		if err != nil {
			return run, err
		}
		run.Add(row.Head)
	}
	run.Tenant, run.Start = r.home.config.Tenant, run.Began()
	return run, nil
}

// Records implements Reader. It ends where the log is being written.
func (r logReader) Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		n := 0
		for f, err := range r.home.framesFrom(q.Run, q.AfterSeq+1) {
			if err == nil {
				err = ctx.Err()
			}
			if errors.Is(err, wal.ErrTorn) {
				return // the rest is on its way to the disk
			}
			row, err := r.row(q, f, err)
			if err == nil && !wanted(q, row) {
				continue
			}
			if n++; !yield(row, err) || err != nil || n == q.Limit {
				return
			}
		}
	}
}

func (r logReader) row(q store.Query, f store.Frame, err error) (store.Row, error) {
	row := store.Row{Tenant: r.home.config.Tenant, Body: f.Body, Salt: f.Salt, Erased: f.Erased}
	row.Run, row.Seq = q.Run, f.Seq
	if err == nil && f.Erased == nil {
		row.Head, err = store.HeadOf(q.Run, f)
	}
	return row, err
}

func wanted(q store.Query, row store.Row) bool {
	switch {
	case row.Seq <= q.AfterSeq, len(q.Kinds) > 0 && !slices.Contains(q.Kinds, audit.Kind(row.Kind)):
		return false
	case !q.From.IsZero() && row.Time.Before(q.From), !q.To.IsZero() && !row.Time.Before(q.To):
		return false
	}
	return true
}

// framesFrom yields a run's frames from the segment on that has seq.
func (h *Home) framesFrom(run string, seq uint64) iter.Seq2[store.Frame, error] {
	return func(yield func(store.Frame, error) bool) {
		segments, err := wal.Segments(h.RunDir(run))
		if err != nil {
			yield(store.Frame{}, err)
			return
		}
		for i, path := range segments {
			if i+1 < len(segments) {
				if next, ok := wal.ParseName(filepath.Base(segments[i+1]), wal.SegmentSuffix); ok && next <= seq {
					continue
				}
			}
			for f, err := range wal.ReadSegment(path) {
				if err != nil {
					err = fmt.Errorf("%s: %w", filepath.Base(path), err)
				}
				if !yield(frameOf(f), err) || err != nil {
					return
				}
			}
		}
	}
}
