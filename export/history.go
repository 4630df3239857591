package export

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Source is the part of a store that an exporter reads; store.Store implements it.
type Source interface {
	// Feed returns segments in the order of ingestion, after a cursor.
	Feed(ctx context.Context, after string, limit int) ([]store.Ref, error)
	// Records yields records in order of seq.
	Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error]
}

// Bounds of a reader's memory.
const (
	pageRows     = 1000     // read from the store in one query,
	pageBytes    = 4 << 20  // or fewer, if they have this size
	historyRuns  = 1024     // runs with a known position
	historyExecs = 1 << 17  // remembered execs,
	historyBytes = 32 << 20 // or fewer, if they have this size
	execOverhead = 256      // approximate bytes of an exec in addition to its text
)

// reader makes events of a store's rows: it remembers, within bounds, the context of earlier rows. It is not safe for
// concurrent use.
type reader struct {
	src   Source
	runs  *simplelru.LRU[runKey, *history]
	execs *simplelru.LRU[procKey, *audit.Exec]
	bytes int // of execs
}

type runKey struct{ tenant, run string }

type procKey struct {
	runKey
	proc string
}

// history is the state of a run after its records with a seq below next.
type history struct {
	next  uint64
	start *audit.Lifecycle
}

func newReader(src Source) *reader {
	r := &reader{src: src}
	r.runs, _ = simplelru.NewLRU[runKey, *history](historyRuns, nil) // fails only for sizes below 1
	r.execs, _ = simplelru.NewLRU(historyExecs, func(_ procKey, e *audit.Exec) { r.bytes -= execSize(e) })
	return r
}

// segment yields the events of ref after seq after, in order. It does not block the
// store between them: it reads a page at a time into memory. kinds are those
// that the caller needs, all if empty; it may yield others too.
func (r *reader) segment(ctx context.Context, ref store.Ref, after uint64, kinds []audit.Kind) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		key := runKey{ref.Tenant, ref.Run}
		h, err := r.history(ctx, key, max(ref.First, after+1))
		if err != nil {
			yield(Event{}, err)
			return
		}
		from := max(ref.First, after+1)
		if after == 0 {
			from = ref.First // seqs may begin at 0
		}
		for from <= ref.Last {
			rows, more, err := r.page(ctx, key, from, ref.Last, withContext(kinds))
			if err != nil {
				yield(Event{}, err)
				return
			}
			for _, row := range rows {
				if !yield(r.event(key, ref.Host, h, row), nil) {
					return
				}
				from = row.Seq + 1
			}
			if !more {
				break
			}
		}
		h.next = max(h.next, ref.Last+1)
	}
}

// page reads the next records with seqs from to last; more is set if there may be further ones.
func (r *reader) page(ctx context.Context, key runKey, from, last uint64, kinds []audit.Kind) (rows []store.Row, more bool, err error) {
	q := store.Query{Tenant: key.tenant, Run: key.run, Kinds: kinds, Limit: pageRows}
	if from > 0 {
		q.AfterSeq = from - 1
	}
	size := 0
	for row, err := range r.src.Records(ctx, q) {
		if err != nil {
			return nil, false, fmt.Errorf("read run %s behind seq %d: %w", key.run, q.AfterSeq, err)
		}
		if row.Seq > last {
			return rows, false, nil
		}
		if row.Seq < from { // AfterSeq 0 means from the beginning
			continue
		}
		rows = append(rows, row)
		if size += len(row.Body); size >= pageBytes {
			return rows, true, nil
		}
	}
	return rows, len(rows) > 0 && len(rows) >= pageRows-1, nil
}

// history returns the state of a run before the record with this seq, and reads earlier records if necessary.
func (r *reader) history(ctx context.Context, key runKey, before uint64) (*history, error) {
	h, ok := r.runs.Get(key)
	if !ok || h.next > before { // it is read again: the state must not include later records
		h = &history{}
		r.runs.Add(key, h)
	}
	for h.next < before {
		rows, more, err := r.page(ctx, key, h.next, before-1, []audit.Kind{audit.KindRun, audit.KindExec})
		if err != nil {
			r.runs.Remove(key)
			return nil, err
		}
		for _, row := range rows {
			r.event(key, "", h, row)
		}
		if !more {
			h.next = before
		}
	}
	return h, nil
}

// withContext adds the kinds of records that are context of other events.
func withContext(kinds []audit.Kind) []audit.Kind {
	if len(kinds) == 0 {
		return nil
	}
	all := []audit.Kind{audit.KindRun, audit.KindExec}
	for _, k := range kinds {
		if k != audit.KindRun && k != audit.KindExec {
			all = append(all, k)
		}
	}
	return all
}

// event decodes a row and adds its context. A record that cannot be decoded, because a
// newer Custody wrote it, has only its head: formats that need more refuse it. A marked row has
// the position at which the store has it, whatever its bytes state, and one that is Wrong is not context of others.
func (r *reader) event(key runKey, host string, h *history, row store.Row) Event {
	e := Event{Tenant: key.tenant, Host: host, Body: row.Body, Erased: row.Erased != nil, Mark: row.Mark}
	if e.Erased || json.Unmarshal(row.Body, &e.Record) != nil {
		e.Record = audit.Record{V: audit.Version, Run: row.Run, Seq: row.Seq, Event: audit.Event{Time: row.Time}}
		if !e.Erased {
			e.Observer, e.Kind, e.Step = row.Observer, row.Kind, row.Step
		}
	}
	h.next = max(h.next, row.Seq+1)
	if e.Mark != nil {
		e.Run, e.Seq = row.Run, row.Seq
	}
	if e.Wrong() {
		e.Start = h.start
		return e
	}
	if e.Kind == audit.KindRun && e.Observer == audit.Host && e.Lifecycle != nil && e.Lifecycle.Phase == audit.PhaseStart {
		h.start = e.Lifecycle
	}
	e.Start = h.start
	r.explain(key, &e)
	return e
}

// explain sets the execs of e's process and parent, and remembers e if it is an exec.
func (r *reader) explain(key runKey, e *Event) {
	proc, parent := procs(e.Event)
	if e.Exec = e.Event.Exec; e.Exec != nil {
		r.remember(procKey{key, proc}, e.Exec)
	} else if proc != "" {
		e.Exec, _ = r.execs.Get(procKey{key, proc})
	}
	if e.Exec != nil {
		parent = e.Exec.Parent
	}
	if parent != "" {
		e.Parent, _ = r.execs.Get(procKey{key, parent})
	}
}

func (r *reader) remember(key procKey, e *audit.Exec) {
	r.execs.Remove(key) // updates the count of bytes
	r.bytes += execSize(e)
	r.execs.Add(key, e)
	for r.bytes > historyBytes {
		r.execs.RemoveOldest()
	}
}

// procs returns the process that caused an event, and its parent if the event names it.
func procs(e audit.Event) (proc, parent string) {
	switch {
	case e.Exec != nil:
		return e.Exec.Proc, e.Exec.Parent
	case e.Exit != nil:
		return e.Exit.Proc, ""
	case e.File != nil:
		return e.File.Proc, e.File.Parent
	case e.Flow != nil:
		return e.Flow.Proc, e.Flow.Parent
	case e.Finding != nil:
		return e.Finding.Proc, ""
	}
	return "", ""
}

func execSize(e *audit.Exec) int {
	n := execOverhead + len(e.Proc) + len(e.Parent) + len(e.Exe) + len(e.Cwd)
	for _, a := range e.Argv {
		n += len(a) + 16
	}
	return n
}
