package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/store"
)

// Reader returns runs and their records: from a store, or from the logs on this host.
type Reader interface {
	Runs(ctx context.Context, f store.Filter) ([]store.Run, error)
	Run(ctx context.Context, tenant, name string) (store.Run, error)
	Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error]
	Search(ctx context.Context, q store.Search) iter.Seq2[store.Row, error]
	Close() error
}

// Reader opens the source that views read runs from: the store, or the logs here if the store is elsewhere and
// host.yaml does not state how to read it.
func (h *Host) Reader(ctx context.Context) (Reader, error) {
	if h.config.Transport != nil && h.config.Store == "" {
		return h.Logs(), nil
	}
	return h.Store(ctx)
}

// Logs reads the runs of this host from their logs, including records that are not sealed yet.
func (h *Host) Logs() Reader { return logReader{h} }

// Live reports whether a process on this host writes the run.
func (l RunLogs) Live(run string) bool { return l.Has(run) && wal.Locked(l.host.RunDir(run)) }

// logReader reads logs through the interface of a store. Finding runs and searching take time in proportion to the size of
// all logs.
//
// Runs are ordered by their names, which begin with the time, so that no log has to be read for the order.
type logReader struct{ host *Host }

// Close does nothing: each call opens and closes its files.
func (r logReader) Close() error { return nil }

// newest returns the names of the tenant's runs, newest first.
func (r logReader) newest(tenant string, class store.Class) ([]string, error) {
	ids, err := r.host.RunLogs().all()
	if err != nil {
		return nil, err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool {
		return class != "" && class != store.Run{ID: id}.Class() || !store.OfTenant(tenant, r.tenantOf(id))
	})
	slices.SortFunc(ids, newer)
	return ids, nil
}

// newer compares names of runs by the times in them.
func newer(a, b string) int {
	_, timeA, _ := strings.Cut(a, "-")
	_, timeB, _ := strings.Cut(b, "-")
	return cmp.Or(strings.Compare(timeB, timeA), strings.Compare(b, a))
}

// Runs implements Reader; of f.Before, only the ID matters.
func (r logReader) Runs(ctx context.Context, f store.Filter) ([]store.Run, error) {
	ids, err := r.newest(f.Tenant, f.Class)
	if err != nil {
		return nil, err
	}
	behind := f.Before
	f.Before = nil
	var runs []store.Run
	for _, id := range ids {
		if behind != nil && newer(id, behind.ID) <= 0 {
			continue
		}
		run, err := r.summary(ctx, id)
		if err != nil {
			return nil, err
		}
		if run.Events == 0 || !f.Match(run) {
			continue
		}
		if runs = append(runs, run); f.Limit > 0 && len(runs) == f.Limit {
			break
		}
	}
	return runs, nil
}

// Run implements Reader.
func (r logReader) Run(ctx context.Context, tenant, name string) (store.Run, error) {
	class := store.Class("")
	if name == store.Last {
		class = store.Sandboxes
	}
	ids, err := r.newest(tenant, class)
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
		found = ids[:1]
	case slices.Contains(found, name):
		found = []string{name}
	}
	switch len(found) {
	case 0:
		return store.Run{}, r.host.Deletions().notFound(ctx, tenant, name)
	case 1:
		return r.summary(ctx, found[0])
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
	run.Tenant, run.Start = r.tenantOf(id), run.Began()
	return run, nil
}

// tenantOf returns the tenant of a run. On a host of one tenant no file is read for it.
func (r logReader) tenantOf(id string) string {
	if !r.host.config.shared() {
		return r.host.config.Tenant
	}
	return r.host.RunLogs().tenantOf(id)
}

// Records implements Reader. It ends at the record that is being written.
func (r logReader) Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		if !r.host.RunLogs().Has(q.Run) {
			return
		}
		tenant := r.tenantOf(q.Run)
		if !store.OfTenant(q.Tenant, tenant) {
			return
		}
		n := 0
		var last time.Time
		for f, err := range r.host.RunLogs().framesFrom(q.Run, q.AfterSeq+1) {
			if err == nil {
				err = ctx.Err()
			}
			if errors.Is(err, wal.ErrTorn) {
				return // the rest is being written
			}
			row, err := r.row(tenant, q, f, err)
			if row.Erased != nil {
				row.Time = last // an erased record has no time
			}
			last = row.Time
			if err == nil && !wanted(q, row) {
				continue
			}
			if n++; !yield(row, err) || err != nil || n == q.Limit {
				return
			}
		}
	}
}

// Search implements Reader. The newest rows are known only when all logs were read. If ctx ends before that, it yields
// none; the user can narrow the search.
func (r logReader) Search(ctx context.Context, q store.Search) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		found, err := r.search(ctx, q)
		if err != nil {
			yield(store.Row{}, err)
			return
		}
		for _, row := range found {
			if !yield(row, nil) {
				return
			}
		}
	}
}

// fewFound is the number of extra rows that search collects before it sorts them and drops the oldest, so that it does not
// sort for each row.
const fewFound = 1000

func (r logReader) search(ctx context.Context, q store.Search) ([]store.Row, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	ids, err := r.newest(q.Tenant, "")
	if err != nil {
		return nil, err
	}
	var found []store.Row
	cut := func() {
		slices.SortFunc(found, func(a, b store.Row) int { return a.Newer(b.Head) })
		if q.Limit > 0 && len(found) > q.Limit {
			clear(found[q.Limit:])
			found = found[:q.Limit]
		}
	}
	for _, id := range ids {
		if onlyAccess(q.Kinds) && !strings.HasPrefix(id, store.AccessPrefix) {
			continue
		}
		for row, err := range r.Records(ctx, store.Query{Run: id, Kinds: q.Kinds, From: q.From, To: q.To}) {
			if err != nil {
				return nil, cutOff(ctx, q, err)
			}
			if !q.Match(row) {
				continue
			}
			if found = append(found, row); q.Limit > 0 && len(found) == q.Limit+fewFound {
				cut()
			}
		}
	}
	cut()
	return found, nil
}

// onlyAccess reports whether records of these kinds are in access logs only.
func onlyAccess(kinds []audit.Kind) bool {
	return len(kinds) > 0 && !slices.ContainsFunc(kinds, func(k audit.Kind) bool { return !k.InAccessLog() })
}

// cutOff is the error of a search that found nothing because its context ended.
func cutOff(ctx context.Context, q store.Search, err error) error {
	if ctx.Err() == nil {
		return err
	}
	at := store.Head{Time: time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)} // before all records
	if q.Before != nil {
		at = *q.Before
	}
	return &store.CutError{At: at, Err: context.Cause(ctx)}
}

func (r logReader) row(tenant string, q store.Query, f store.Frame, err error) (store.Row, error) {
	row := store.Row{Tenant: tenant, Body: f.Body, Salt: f.Salt, Erased: f.Erased, Early: true}
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

// framesFrom yields a run's frames, beginning with the segment that contains seq.
func (l RunLogs) framesFrom(run string, seq uint64) iter.Seq2[store.Frame, error] {
	return func(yield func(store.Frame, error) bool) {
		segments, err := wal.Segments(l.host.RunDir(run))
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

// all names the runs that have a log here, oldest first.
func (l RunLogs) all() ([]string, error) {
	entries, err := os.ReadDir(l.host.path("runs"))
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
