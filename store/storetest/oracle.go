package storetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

var _ store.Store = (*Oracle)(nil)

// Oracle is an in-memory store that is slow and obviously right: every query
// scans all rows. The zero value is empty.
type Oracle struct {
	mu    sync.Mutex // guards the fields below
	rows  []store.Row
	links []link
}

// link is a manifest, or the ingest of a segment without one.
type link struct {
	tenant, host, run string
	store.Manifest
}

// Ingest implements store.Store; a batch is ingested as a whole or not at all.
func (o *Oracle) Ingest(ctx context.Context, segs ...store.Segment) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	rows, links := len(o.rows), len(o.links)
	for _, seg := range segs {
		if err := o.ingest(seg); err != nil {
			o.rows, o.links = o.rows[:rows], o.links[:links]
			return err
		}
	}
	return nil
}

func (o *Oracle) ingest(seg store.Segment) error {
	if err := seg.Check(); err != nil {
		return err
	}
	heads, err := seg.Heads()
	if err != nil {
		return err
	}
	for _, l := range o.links {
		if l.run == seg.Run && (l.tenant != seg.Tenant || l.host != seg.Host) {
			return fmt.Errorf("the run is another's: %w", store.ErrConflict)
		}
	}
	isNew := len(seg.Manifest) > 0
	for _, l := range o.links {
		if l.run == seg.Run && l.Index == seg.Index && len(l.Bytes) > 0 && len(seg.Manifest) > 0 {
			if isNew = false; !bytes.Equal(l.Bytes, seg.Manifest) {
				return fmt.Errorf("manifest %d: %w", seg.Index, store.ErrConflict)
			}
		}
	}
	for i, f := range seg.Frames {
		have := o.find(seg.Run, f.Seq)
		if have == nil {
			isNew = true
			o.rows = append(o.rows, row(seg, f, heads[i]))
		} else if have.Frame().Leaf() != f.Leaf() {
			return fmt.Errorf("record %d: %w", f.Seq, store.ErrConflict)
		}
	}
	if isNew {
		o.links = append(o.links, link{seg.Tenant, seg.Host, seg.Run, store.Manifest{Index: seg.Index, First: seg.First, Last: seg.Last,
			Count: uint64(len(seg.Frames)), Root: seg.Root, Bytes: seg.Manifest}})
	}
	return nil
}

// Repair implements store.Store.
func (o *Oracle) Repair(ctx context.Context, seg store.Segment) error {
	if err := errors.Join(ctx.Err(), seg.CheckSigned()); err != nil {
		return err
	}
	heads, err := seg.Heads()
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var own *link
	for i, l := range o.links {
		if l.run == seg.Run && (l.tenant != seg.Tenant || l.host != seg.Host) {
			return fmt.Errorf("the run is another's: %w", store.ErrConflict)
		}
		if l.run == seg.Run && l.Index == seg.Index && len(l.Bytes) > 0 {
			own = &o.links[i]
		}
	}
	switch {
	case own == nil:
		rows, links := len(o.rows), len(o.links)
		if err := o.ingest(seg); err != nil {
			o.rows, o.links = o.rows[:rows], o.links[:links]
			return err
		}
		return nil
	case !bytes.Equal(own.Bytes, seg.Manifest):
		return fmt.Errorf("manifest %d: %w", seg.Index, store.ErrConflict)
	}
	fresh := link{seg.Tenant, seg.Host, seg.Run, store.Manifest{Index: seg.Index, First: seg.First, Last: seg.Last,
		Count: uint64(len(seg.Frames)), Root: seg.Root, Bytes: seg.Manifest}}
	changed := own.Count != fresh.Count || own.First != fresh.First || own.Last != fresh.Last
	if o.repairRows(seg, heads) || changed {
		own.Bytes = nil // it is in the feed already; the new link has the manifest
		o.links = append(o.links, fresh)
	}
	return nil
}

func (o *Oracle) repairRows(seg store.Segment, heads []store.Head) (changed bool) {
	stay := map[uint64]bool{}
	for i, f := range seg.Frames {
		stay[f.Seq] = true
		want := row(seg, f, heads[i])
		have := o.find(seg.Run, f.Seq)
		if have == nil {
			o.rows, changed = append(o.rows, want), true
			continue
		}
		if have.Frame().Leaf() == f.Leaf() {
			continue
		}
		if have.Erased != nil && f.Erased == nil {
			leaf := f.Leaf()
			want = store.Row{Head: store.Head{Run: seg.Run, Seq: f.Seq, Time: want.Time}, Tenant: seg.Tenant, Erased: &leaf}
		} else if have.Erased != nil {
			want.Time = have.Time
		}
		*have, changed = want, true
	}
	before := len(o.rows)
	o.rows = slices.DeleteFunc(o.rows, func(r store.Row) bool {
		return len(seg.Frames) > 0 && r.Run == seg.Run && seg.First <= r.Seq && r.Seq <= seg.Last && !stay[r.Seq]
	})
	return changed || len(o.rows) < before
}

// row returns a frame as readers get it.
func row(seg store.Segment, f store.Frame, h store.Head) store.Row {
	return store.Row{Head: plain(h), Tenant: seg.Tenant, Body: bytes.Clone(f.Body), Salt: f.Salt, Erased: f.Erased}
}

// plain is h without the fields that only folding needs.
func plain(h store.Head) store.Head {
	return store.Head{Run: h.Run, Seq: h.Seq, Time: h.Time.UTC(), Observer: h.Observer, Kind: h.Kind, Step: h.Step, Proc: h.Proc,
		Path: h.Path, Host: h.Host, Hash: h.Hash, Secret: h.Secret, Rule: h.Rule}
}

func (o *Oracle) find(run string, seq uint64) *store.Row {
	for i := range o.rows {
		if o.rows[i].Run == run && o.rows[i].Seq == seq {
			return &o.rows[i]
		}
	}
	return nil
}

// where returns copies of the rows that match.
func (o *Oracle) where(match func(store.Row) bool) (rows []store.Row) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.rows {
		if match(r) {
			r.Body = bytes.Clone(r.Body)
			rows = append(rows, r)
		}
	}
	return rows
}

func yieldAll(ctx context.Context, rows []store.Row, limit int) iter.Seq2[store.Row, error] {
	if limit > 0 && limit < len(rows) {
		rows = rows[:limit]
	}
	return func(yield func(store.Row, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(store.Row{}, err)
			return
		}
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func within(t, from, to time.Time) bool {
	return !t.Before(from) && (to.IsZero() || t.Before(to))
}

func anyOf(k audit.Kind, kinds []audit.Kind) bool {
	return len(kinds) == 0 || slices.Contains(kinds, k)
}

// Records implements store.Store.
func (o *Oracle) Records(ctx context.Context, q store.Query) iter.Seq2[store.Row, error] {
	rows := o.where(func(r store.Row) bool {
		return r.Run == q.Run && ofTenant(q.Tenant, r.Tenant) && (r.Seq > q.AfterSeq || q.AfterSeq == 0) &&
			anyOf(r.Kind, q.Kinds) && within(r.Time, q.From, q.To)
	})
	slices.SortFunc(rows, func(a, b store.Row) int { return cmp.Compare(a.Seq, b.Seq) })
	return yieldAll(ctx, rows, q.Limit)
}

// ofTenant reports whether a row's tenant is included.
func ofTenant(asked, have string) bool {
	switch asked {
	case "":
		return true
	case store.NoTenant:
		return have == ""
	}
	return asked == have
}

// Search implements store.Store.
func (o *Oracle) Search(ctx context.Context, q store.Search) iter.Seq2[store.Row, error] {
	if q.Path+q.Host+q.Hash+q.Secret+q.Rule+q.Text == "" && q.From.IsZero() {
		return func(yield func(store.Row, error) bool) { yield(store.Row{}, errors.New("a search for nothing")) }
	}
	is := func(asked, have string) bool { return asked == "" || asked == have }
	rows := o.where(func(r store.Row) bool {
		return ofTenant(q.Tenant, r.Tenant) && is(q.Path, r.Path) && is(store.HostName(q.Host), r.Host) && is(q.Hash, r.Hash) &&
			is(q.Secret, r.Secret) && is(q.Rule, r.Rule) && anyOf(r.Kind, q.Kinds) && within(r.Time, q.From, q.To) && says(r.Body, q.Text)
	})
	slices.SortFunc(rows, func(a, b store.Row) int { return newest(a.Head, b.Head) })
	if q.Before != nil {
		rows = slices.DeleteFunc(rows, func(r store.Row) bool { return newest(r.Head, *q.Before) <= 0 })
	}
	return func(yield func(store.Row, error) bool) {
		at := store.Head{Time: time.Unix(1<<40, 0)}
		for i, r := range rows {
			if q.Limit > 0 && i == q.Limit {
				return
			}
			if err := ctx.Err(); err != nil {
				yield(store.Row{}, &store.CutError{At: at, Err: err})
				return
			}
			if at = r.Head; !yield(r, nil) {
				return
			}
		}
	}
}

// newest compares in the order of Search.
func newest(a, b store.Head) int {
	return cmp.Or(b.Time.Compare(a.Time), strings.Compare(b.Run, a.Run), cmp.Compare(b.Seq, a.Seq))
}

// says compares byte by byte.
func says(body []byte, text string) bool {
	small := func(c byte) byte {
		if 'A' <= c && c <= 'Z' {
			return c + 32
		}
		return c
	}
	for i := 0; i+len(text) <= len(body); i++ {
		n := 0
		for n < len(text) && small(body[i+n]) == small(text[n]) {
			n++
		}
		if n == len(text) {
			return true
		}
	}
	return false
}

// Runs implements store.Store.
func (o *Oracle) Runs(ctx context.Context, f store.Filter) ([]store.Run, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	order := func(a, b store.Run) int { return cmp.Or(b.Start.Compare(a.Start), strings.Compare(b.ID, a.ID)) }
	var runs []store.Run
	for _, r := range o.fold() {
		look := strings.HasPrefix(r.ID, "a-")
		if ofTenant(f.Tenant, r.Tenant) && (f.Project == "" || f.Project == r.Project) && (f.Status == "" || f.Status == r.Status) &&
			(f.Class == "" || f.Class == store.Accesses && look || f.Class == store.Sandboxes && !look) &&
			(!f.Findings || r.Findings > 0) && within(r.Start, f.From, f.To) && (f.Before == nil || order(*f.Before, r) < 0) {
			runs = append(runs, r)
		}
	}
	slices.SortFunc(runs, order)
	if f.Limit > 0 && f.Limit < len(runs) {
		runs = runs[:f.Limit]
	}
	return runs, nil
}

// fold computes the summaries from all rows.
func (o *Oracle) fold() map[string]store.Run {
	runs := map[string]store.Run{}
	for _, r := range o.where(func(store.Row) bool { return true }) {
		sum, ok := runs[r.Run]
		if !ok {
			sum = store.NewRun(r.Run)
			sum.Tenant, sum.Host = r.Tenant, o.hostOf(r.Run)
		}
		if r.Erased != nil {
			sum.Add(r.Head)
		} else if h, err := store.ParseHead(r.Body); err == nil {
			sum.Add(h)
		}
		runs[r.Run] = sum
	}
	for id, sum := range runs {
		sum.Start = sum.Began()
		runs[id] = sum
	}
	return runs
}

func (o *Oracle) hostOf(run string) string {
	for _, l := range o.links {
		if l.run == run {
			return l.host
		}
	}
	return ""
}

// Run implements store.Store.
func (o *Oracle) Run(ctx context.Context, tenant, name string) (store.Run, error) {
	runs, _ := o.Runs(ctx, store.Filter{Tenant: tenant})
	var found []store.Run
	for _, r := range runs {
		if r.ID == name || name == store.Last && !strings.HasPrefix(r.ID, "a-") {
			return r, nil
		}
		if name != "" && strings.HasPrefix(r.ID, name) {
			found = append(found, r)
		}
	}
	switch {
	case len(found) == 0 || name == store.Last:
		return store.Run{}, store.ErrNotFound
	case len(found) > 1:
		return store.Run{}, store.ErrAmbiguous
	}
	return found[0], nil
}

// Manifests implements store.Store.
func (o *Oracle) Manifests(_ context.Context, tenant, run string) ([]store.Manifest, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var chain []store.Manifest
	for _, l := range o.links {
		if l.run == run && ofTenant(tenant, l.tenant) && len(l.Bytes) > 0 {
			chain = append(chain, l.Manifest)
		}
	}
	slices.SortFunc(chain, func(a, b store.Manifest) int { return cmp.Compare(a.Index, b.Index) })
	// Ingesting the rest of a segment makes a second link.
	return slices.CompactFunc(chain, func(a, b store.Manifest) bool { return a.Index == b.Index }), nil
}

// Feed implements store.Store.
func (o *Oracle) Feed(_ context.Context, after string, limit int) ([]store.Ref, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	from := 0
	if after != "" {
		n, err := strconv.Atoi(after)
		if err != nil {
			return nil, err
		}
		from = min(n, len(o.links))
	}
	var refs []store.Ref
	for i, l := range o.links[from:] {
		if limit > 0 && i == limit {
			break
		}
		refs = append(refs, store.Ref{Tenant: l.tenant, Host: l.host, Run: l.run, Index: l.Index, First: l.First, Last: l.Last,
			Count: l.Count, Cursor: strconv.Itoa(from + i + 1)})
	}
	return refs, nil
}

// Erase implements store.Store.
func (o *Oracle) Erase(_ context.Context, tenant, run string, seq uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	known := slices.ContainsFunc(o.rows, func(r store.Row) bool { return r.Run == run && ofTenant(tenant, r.Tenant) })
	r := o.find(run, seq)
	switch {
	case !known:
		return store.ErrNotFound
	case r == nil:
		return store.ErrNoRecord
	}
	leaf := r.Frame().Leaf()
	*r = store.Row{Head: store.Head{Run: run, Seq: seq, Time: r.Time}, Tenant: r.Tenant, Erased: &leaf}
	return nil
}

// Close implements store.Store.
func (o *Oracle) Close() error { return nil }
