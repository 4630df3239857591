package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/store"
)

// repairs bounds how often rows are read and repaired before another process counts as changing them.
const repairs = 4

// Repair implements store.Store:
//
//	plan ---- compares row by row: if nothing differs, the repair ends here
//	|
//	feed ---- adds the segment to the feed again, first, so that no kill can prevent that
//	rows ---- adds correct rows in addition to wrong ones: there is always a row
//	marker -- adds the correct marker in addition to wrong ones
//	remove -- removes wrong rows, by their hash on the server, so that correct rows and those
//	|         that others insert concurrently stay (a mutation, for which it waits)
//	plan again
//
// After a kill at any point, the next Repair plans the remaining work.
func (s *Store) Repair(ctx context.Context, seg store.Segment) error {
	err := seg.CheckSigned()
	var in *segment
	if err == nil {
		in, err = prepare(seg)
	}
	if err == nil {
		err = s.repairer.repair(ctx, in)
	}
	if err != nil {
		return fmt.Errorf("repair: run %.140q: %w", seg.Run, err)
	}
	return nil
}

// repairer corrects the rows of segments.
type repairer struct {
	db       *database
	lookup   lookup
	feed     feed
	insert   inserter
	ingester ingester
	eraser   eraser
}

func (r repairer) repair(ctx context.Context, in *segment) error {
	runs, err := spans([]*segment{in})
	if err == nil {
		err = r.lookup.checkOwners(ctx, runs)
	}
	if err != nil {
		return err
	}
	k := &known{}
	begin, changed := time.Now(), false
	for range repairs {
		if k.erased, err = r.lookup.readErasures(ctx, []*segment{in}); err != nil {
			return err
		}
		p, err := r.plan(ctx, in, k)
		if errors.Is(err, errNew) {
			return r.ingester.ingest(ctx, []*segment{in})
		}
		if err != nil {
			return err
		}
		if p.empty() {
			return r.repaired(ctx, in, k, begin, changed)
		}
		changed = true
		if err := r.carryOut(ctx, in, p); err != nil {
			return err
		}
	}
	return errors.New("the rows keep changing: stop the programs that write to the database, and repeat the repair")
}

// repaired ends a repair: it erases again what was erased meanwhile, and adds the segment to the feed again if a
// reader of the feed may have been there before the rows.
func (r repairer) repaired(ctx context.Context, in *segment, k *known, begin time.Time, changed bool) error {
	if changed && time.Since(begin) > r.feed.settle/2 {
		if err := r.feed.add(ctx, []*segment{in}); err != nil {
			return err
		}
	}
	return r.eraser.eraseLate(ctx, []*segment{in}, k, changed)
}

// plan is the work of a repair.
type plan struct {
	rows       rowBuffer // to be added
	seqs       []uint64  // of rows that are wrong or missing
	badRows    []string  // by hash
	sum        store.Run // correct contents of the marker
	marker     bool      // add it
	badMarkers []string
}

func (p *plan) empty() bool {
	return len(p.rows.seq) == 0 && len(p.badRows) == 0 && !p.marker && len(p.badMarkers) == 0
}

// errNew: the store has no manifest with the segment's index.
var errNew = errors.New("new")

func (r repairer) plan(ctx context.Context, in *segment, k *known) (*plan, error) {
	p := &plan{sum: store.NewRun(in.Run)}
	markers, err := r.markersAt(ctx, in)
	if err != nil {
		return nil, err
	}
	if len(in.Frames) > 0 {
		have, err := r.rowsAt(ctx, in)
		if err != nil {
			return nil, err
		}
		if err := p.planRows(in, k, have); err != nil {
			return nil, err
		}
	}
	p.marker = true
	for _, m := range markers {
		if m.is(in, p.sum) {
			p.marker = false
		} else {
			p.badMarkers = append(p.badMarkers, m.hash)
		}
	}
	return p, nil
}

// planRows compares the rows with the correct ones.
func (p *plan) planRows(in *segment, k *known, have map[uint64][]storedRow) error {
	for i, f := range in.Frames {
		rows := have[f.Seq]
		delete(have, f.Seq)
		h := in.heads[i]
		frame, at := chosen(rows, in.leaves[i])
		if k.erased[place{in.Tenant, in.Run, f.Seq}] && frame.Erased == nil {
			frame, at = store.Frame{Erased: &in.leaves[i]}, h.Time
		}
		f, h, err := store.Mended(in.Run, f, h, frame, at)
		if err != nil {
			return err
		}
		p.sum.Add(h)
		right, bad := false, 0
		for _, r := range rows {
			if r.is(in.Tenant, f, h, in.leaves[i]) {
				right = true
			} else {
				bad++
				p.badRows = append(p.badRows, r.hash)
			}
		}
		if !right {
			p.rows.add(in, f, h, in.leaves[i])
		}
		if bad > 0 || !right {
			p.seqs = append(p.seqs, f.Seq)
		}
	}
	for seq, rows := range have {
		p.seqs = append(p.seqs, seq)
		for _, r := range rows {
			p.badRows = append(p.badRows, r.hash)
		}
	}
	return nil
}

// storedRow is a row as in the database, whatever was altered.
type storedRow struct {
	found
	class, hash string
}

// chosen returns the record that the rows with one seq represent: erased, if one of them is, else the one with the leaf,
// if there is one.
func chosen(rows []storedRow, leaf [32]byte) (frame store.Frame, at time.Time) {
	for _, r := range rows {
		switch f := r.Frame(); {
		case f.Erased != nil && (frame.Erased == nil || f.Leaf() == leaf):
			frame, at = f, r.Time
		case f.Erased == nil && frame.Erased == nil && f.Leaf() == leaf:
			frame, at = f, r.Time
		}
	}
	return frame, at
}

// is reports whether r is the row of a frame. It ignores the root of its segment.
func (r storedRow) is(tenant string, f store.Frame, h store.Head, leaf [32]byte) bool {
	erased := f.Erased != nil
	return r.Tenant == tenant && r.leaf == leaf && (erased || r.class == string(classOf(h.Kind))) &&
		r.Head.SameColumns(h) && (r.Erased != nil) == erased && string(r.Body) == string(f.Body) && r.Salt == f.Salt
}

const rowHash = "hex(sipHash128(tenant, run, time, seq, leaf, toString(class), kind, observer, step, proc, path, host, hash, secret, rule, salt, body))"

// rowsAt reads all rows between the segment's bounds, including copies that are not merged yet, by seq.
func (r repairer) rowsAt(ctx context.Context, in *segment) (map[uint64][]storedRow, error) {
	rows, err := r.db.conn.Query(ctx, "SELECT tenant, run, seq, time, leaf, root, toUInt8(0), kind, observer, step, proc, path, host, hash, secret, rule, "+
		"salt, body, toString(class), "+rowHash+" FROM records WHERE "+in.bounds())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[uint64][]storedRow{}
	for rows.Next() {
		var r storedRow
		f, err := scanRow(rows, &r.class, &r.hash)
		if err != nil {
			return nil, err
		}
		if r.found = f; f.Kind == "" { // remaining contents are compared too
			r.Erased = &f.leaf
		}
		all[f.Seq] = append(all[f.Seq], r)
	}
	return all, rows.Err()
}

func (in *segment) bounds() string {
	return fmt.Sprintf("tenant = %s AND run = %s AND seq BETWEEN %d AND %d", quote(in.Tenant), quote(in.Run), in.First, in.Last)
}

// storedMarker is a marker with the segment's manifest.
type storedMarker struct {
	first, last, count                          uint64
	root, digest, frames                        string
	firstTime, start, end                       *time.Time
	lastSeq                                     uint64
	project, template, tier, mode, result, hash string
	exit                                        *int64
	findings, gaps, lost                        uint64
}

// is reports whether m is the marker that mark writes for the segment.
func (m storedMarker) is(in *segment, sum store.Run) bool {
	return m.first == in.First && m.last == in.Last && m.count == uint64(len(in.Frames)) && m.root == in.rootText &&
		m.digest == string(in.digest[:]) && m.frames == string(in.frames[:]) && m.lastSeq == sum.LastSeq &&
		sameTime(m.firstTime, moment(sum.FirstTime)) && sameTime(m.start, moment(sum.Start)) && sameTime(m.end, sum.End) &&
		m.project == sum.Project && m.template == sum.Template && m.tier == sum.Tier && m.mode == sum.Mode && m.result == string(sum.Result) &&
		same(m.exit, number(sum.ExitCode)) && m.findings == sum.Findings && m.gaps == sum.Gaps && m.lost == sum.Lost
}

func same(a, b *int64) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

func sameTime(a, b *time.Time) bool { return (a == nil) == (b == nil) && (a == nil || a.Equal(*b)) }

const markerHash = "hex(sipHash128(toString(tuple(" + segmentColumns + "))))"

// markersAt reads the markers with the segment's index. The error is errNew if none has a manifest,
// store.ErrConflict if one has another.
func (r repairer) markersAt(ctx context.Context, in *segment) (all []storedMarker, err error) {
	rows, err := r.db.conn.Query(ctx, "SELECT first, last, count, root, digest, frames, manifest, first_time, last_seq, start, end, project, template, tier, mode, "+
		"result, exit_code, findings, gaps, lost, "+markerHash+" FROM segments WHERE "+in.markers())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var m storedMarker
		var manifest string
		err := rows.Scan(&m.first, &m.last, &m.count, &m.root, &m.digest, &m.frames, &manifest, &m.firstTime, &m.lastSeq, &m.start, &m.end,
			&m.project, &m.template, &m.tier, &m.mode, &m.result, &m.exit, &m.findings, &m.gaps, &m.lost, &m.hash)
		if err != nil {
			return nil, err
		}
		if manifest != string(in.Manifest) {
			return nil, fmt.Errorf("manifest %d: %w", in.Index, store.ErrConflict)
		}
		all = append(all, m)
	}
	if rows.Err() == nil && len(all) == 0 {
		return nil, errNew
	}
	return all, rows.Err()
}

// markers returns the condition for those with a manifest and the segment's index.
func (in *segment) markers() string {
	return fmt.Sprintf("tenant = %s AND run = %s AND idx = %d AND manifest != ''", quote(in.Tenant), quote(in.Run), in.Index)
}

func (r repairer) carryOut(ctx context.Context, in *segment, p *plan) error {
	if err := r.feed.add(ctx, []*segment{in}); err != nil {
		return err
	}
	if len(p.rows.seq) > 0 {
		if err := r.insert.records(ctx, &p.rows, ""); err != nil {
			return err
		}
	}
	if p.marker {
		if err := r.insert.markers(ctx, []*segment{in}, []store.Run{p.sum}); err != nil {
			return err
		}
	}
	if err := r.removeByHash(ctx, "records", in.bounds(), rowHash, p.badRows); err != nil {
		return err
	}
	return r.removeByHash(ctx, "segments", in.markers(), markerHash, p.badMarkers)
}

// hashesAtOnce is the number of hashes in one statement, below max_query_size.
const hashesAtOnce = 4000

func (r repairer) removeByHash(ctx context.Context, table, where, hash string, bad []string) error {
	slices.Sort(bad)
	for some := range slices.Chunk(slices.Compact(bad), hashesAtOnce) {
		condition := where + " AND " + hash + " IN ('" + strings.Join(some, "', '") + "')"
		if err := r.db.mutate(ctx, table, "DELETE", condition); err != nil {
			return err
		}
	}
	return nil
}
