package clickhouse

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/custody-project/custody/store"
)

// place is the position of a record.
type place struct {
	tenant, run string
	seq         uint64
}

// runKey is a run of a tenant.
type runKey struct{ tenant, run string }

// marker is a segment's row, with the fields that ingest needs.
type marker struct {
	index, first, last, count uint64
	digest, frames            [32]byte // of the manifest, of the records
}

func (in *segment) key() runKey { return runKey{in.Tenant, in.Run} }

// known is what the store has of the runs of a batch.
type known struct {
	leaves  map[place][32]byte
	markers map[runKey][]marker
	erased  map[place]bool
}

func digest(manifest []byte) [32]byte { return sha256.Sum256(manifest) }

// lookup reads the database at the positions of a batch.
type lookup struct{ db *database }

// look reads what the store has of the batch's runs, and returns ErrConflict if it contradicts the batch.
func (l lookup) look(ctx context.Context, batch []*segment) (*known, error) {
	k := &known{leaves: map[place][32]byte{}, markers: map[runKey][]marker{}}
	if err := l.readMarkers(ctx, batch, k); err != nil {
		return nil, err
	}
	err := k.checkManifests(batch)
	if err != nil {
		return nil, err
	}
	if k.erased, err = l.readErasures(ctx, batch); err != nil {
		return nil, err
	}
	counts, err := l.fingerprints(ctx, batch)
	if err != nil || len(counts) == 0 {
		return k, err
	}
	have, err := l.readLeaves(ctx, batch)
	if err != nil {
		return nil, err
	}
	if _, err := compare(batch, have, k.marked); err != nil {
		return nil, err
	}
	for _, in := range batch {
		for i, f := range in.Frames {
			at := place{in.Tenant, in.Run, f.Seq}
			if slices.Contains(have[at], in.leaves[i]) {
				k.leaves[at] = in.leaves[i]
			}
		}
	}
	return k, nil
}

// span is the range of a batch's records and manifests of a run.
type span struct {
	*segment
	lowest, highest uint64 // manifests
	first, last     uint64 // records
	some            bool   // records
}

// spans returns the spans of the batch by run. It fails if a run of the batch has two tenants or hosts.
func spans(batch []*segment) (map[string]*span, error) {
	all := map[string]*span{}
	for _, in := range batch {
		sp := all[in.Run]
		if sp == nil {
			sp = &span{segment: in, lowest: in.Index, highest: in.Index}
			all[in.Run] = sp
		}
		if sp.Tenant != in.Tenant || sp.Host != in.Host {
			return nil, fmt.Errorf("run %s has two tenants or hosts: %w", in.Run, store.ErrConflict)
		}
		sp.lowest, sp.highest = min(sp.lowest, in.Index), max(sp.highest, in.Index)
		if len(in.Frames) == 0 {
			continue
		}
		if !sp.some {
			sp.first, sp.some = in.First, true
		}
		sp.first, sp.last = min(sp.first, in.First), max(sp.last, in.Last)
	}
	return all, nil
}

// checkOwners fails if a run of the batch belongs to another tenant or host.
func (l lookup) checkOwners(ctx context.Context, runs map[string]*span) error {
	quoted := make([]string, 0, len(runs))
	for run := range runs {
		quoted = append(quoted, quote(run))
	}
	rows, err := l.db.conn.Query(ctx, "SELECT DISTINCT run, tenant, host FROM segments WHERE run IN ("+strings.Join(quoted, ", ")+")")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var run, tenant, host string
		if err := rows.Scan(&run, &tenant, &host); err != nil {
			return err
		}
		if o := runs[run]; o.Tenant != tenant || o.Host != host {
			return fmt.Errorf("run %s is tenant %q's on host %q, not tenant %q's on host %q: %w", run, tenant, host, o.Tenant, o.Host, store.ErrConflict)
		}
	}
	return rows.Err()
}

// readMarkers reads the segments of the batch's runs that have a manifest or records at the batch's positions.
func (l lookup) readMarkers(ctx context.Context, batch []*segment, k *known) error {
	runs, err := spans(batch)
	if err != nil {
		return err
	}
	if err := l.checkOwners(ctx, runs); err != nil {
		return err
	}
	var where []string
	for _, sp := range runs {
		where = append(where, fmt.Sprintf("(tenant = %s AND run = %s AND (idx BETWEEN %d AND %d OR count > 0 AND first <= %d AND last >= %d))",
			quote(sp.Tenant), quote(sp.Run), sp.lowest, sp.highest, sp.last, sp.first))
	}
	rows, err := l.db.conn.Query(ctx, "SELECT tenant, run, idx, first, last, count, digest, frames FROM segments WHERE "+strings.Join(where, " OR "))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var at runKey
		var dig, frames string
		var m marker
		if err := rows.Scan(&at.tenant, &at.run, &m.index, &m.first, &m.last, &m.count, &dig, &frames); err != nil {
			return err
		}
		copy(m.digest[:], dig)
		copy(m.frames[:], frames)
		k.markers[at] = append(k.markers[at], m)
	}
	return rows.Err()
}

var noManifest = digest(nil)

// checkManifests fails if the store or the batch has another manifest with the index of one of the batch's.
func (k *known) checkManifests(batch []*segment) error {
	type link struct {
		runKey
		index uint64
	}
	have := map[link][32]byte{}
	for run, markers := range k.markers {
		for _, m := range markers {
			if m.digest != noManifest {
				have[link{run, m.index}] = m.digest
			}
		}
	}
	for _, in := range batch {
		if len(in.Manifest) == 0 {
			continue
		}
		at := link{in.key(), in.Index}
		if d, ok := have[at]; ok && d != in.digest {
			return fmt.Errorf("run %s manifest %d: %w", in.Run, in.Index, store.ErrConflict)
		}
		have[at] = in.digest
	}
	return nil
}

// marked reports whether exactly this segment has a marker.
func (k *known) marked(in *segment) bool {
	for _, m := range k.markers[in.key()] {
		if m.index == in.Index && m.digest == in.digest && m.frames == in.frames {
			return true
		}
	}
	return false
}

// needsMarker reports whether a segment whose records all exist, and that has no marker, needs one: its
// manifest is new, or no marker counts its records.
func (k *known) needsMarker(in *segment) bool {
	markers := k.markers[in.key()]
	isNew := len(in.Manifest) > 0
	for _, m := range markers {
		isNew = isNew && (m.index != in.Index || m.digest != in.digest)
	}
	for _, f := range in.Frames {
		isNew = isNew || !covered(markers, f.Seq)
	}
	return isNew
}

// add adds a segment as marked.
func (k *known) add(in *segment) {
	k.markers[in.key()] = append(k.markers[in.key()], marker{in.Index, in.First, in.Last, uint64(len(in.Frames)), in.digest, in.frames})
}

// covered reports whether a marker counts the record. A marker with holes does not prove that for a single seq.
func covered(markers []marker, seq uint64) bool {
	for _, m := range markers {
		if m.count > 0 && m.first <= seq && seq <= m.last && m.count == m.last-m.first+1 {
			return true
		}
	}
	return false
}

// ranges returns the conditions for the records of the batch, by run. It merges adjacent ranges.
func ranges(batch []*segment) []string {
	var conditions []string
	var last *segment
	var to uint64
	var from uint64
	flush := func() {
		if last != nil {
			conditions = append(conditions, fmt.Sprintf("(tenant = %s AND run = %s AND seq BETWEEN %d AND %d)", quote(last.Tenant), quote(last.Run), from, to))
		}
	}
	for _, in := range batch {
		if len(in.Frames) == 0 {
			continue
		}
		if last != nil && last.Run == in.Run && last.Tenant == in.Tenant && in.First == to+1 {
			to = in.Last
			continue
		}
		flush()
		last, from, to = in, in.First, in.Last
	}
	flush()
	return conditions
}

// perQuery is the number of ranges in one query, far below max_query_size.
const perQuery = 500

// eachRange calls do with conditions that together cover the records of the batch.
func eachRange(batch []*segment, do func(where string) error) error {
	all := ranges(batch)
	for len(all) > 0 {
		n := min(perQuery, len(all))
		if err := do(strings.Join(all[:n], " OR ")); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// fingerprint identifies a set of rows without comparing them one by one: by their number and the sums of two parts of
// their leaves.
type fingerprint struct{ count, a, b uint64 }

func (f *fingerprint) add(leaf [32]byte) {
	f.count++
	f.a += binary.LittleEndian.Uint64(leaf[:8])
	f.b += binary.LittleEndian.Uint64(leaf[8:16])
}

// fingerprints returns the fingerprints of the existing rows, by run; it omits runs without rows.
func (l lookup) fingerprints(ctx context.Context, batch []*segment) (map[runKey]fingerprint, error) {
	all := map[runKey]fingerprint{}
	err := eachRange(batch, func(where string) error {
		rows, err := l.db.conn.Query(ctx, `SELECT tenant, run, count(), sum(reinterpretAsUInt64(substring(leaf, 1, 8))),
			sum(reinterpretAsUInt64(substring(leaf, 9, 8))) FROM records WHERE `+where+` GROUP BY tenant, run`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var at runKey
			var f fingerprint
			if err := rows.Scan(&at.tenant, &at.run, &f.count, &f.a, &f.b); err != nil {
				return err
			}
			have := all[at]
			all[at] = fingerprint{have.count + f.count, have.a + f.a, have.b + f.b}
		}
		return rows.Err()
	})
	return all, err
}

// wanted returns the expected fingerprints of the batch's runs.
func wanted(batch []*segment) map[runKey]fingerprint {
	all, disjoint := map[runKey]fingerprint{}, disjoint(batch)
	seen := map[place]bool{}
	for _, in := range batch {
		f := all[in.key()]
		for i, frame := range in.Frames {
			if !disjoint {
				at := place{in.Tenant, in.Run, frame.Seq}
				if seen[at] {
					continue
				}
				seen[at] = true
			}
			f.add(in.leaves[i])
		}
		if f.count > 0 {
			all[in.key()] = f
		}
	}
	return all
}

// disjoint reports whether the segments of each run do not overlap, which is the usual case.
func disjoint(batch []*segment) bool {
	last := map[runKey]uint64{}
	for _, in := range batch {
		if len(in.Frames) == 0 {
			continue
		}
		if before, ok := last[in.key()]; ok && in.First <= before {
			return false
		}
		last[in.key()] = in.Last
	}
	return true
}

// readLeaves returns the distinct leaves at the positions of the batch's records.
func (l lookup) readLeaves(ctx context.Context, batch []*segment) (map[place][][32]byte, error) {
	all := map[place][][32]byte{}
	err := eachRange(batch, func(where string) error {
		rows, err := l.db.conn.Query(ctx, "SELECT DISTINCT tenant, run, seq, leaf FROM records WHERE "+where)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var at place
			var leaf string
			if err := rows.Scan(&at.tenant, &at.run, &at.seq, &leaf); err != nil {
				return err
			}
			all[at] = append(all[at], [32]byte([]byte(leaf)))
		}
		return rows.Err()
	})
	return all, err
}

// readErasures returns the erased records of the batch's runs.
func (l lookup) readErasures(ctx context.Context, batch []*segment) (map[place]bool, error) {
	var gone map[place]bool
	err := eachRange(batch, func(where string) error {
		rows, err := l.db.conn.Query(ctx, "SELECT tenant, run, seq FROM erasures WHERE "+where)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var at place
			if err := rows.Scan(&at.tenant, &at.run, &at.seq); err != nil {
				return err
			}
			if gone == nil {
				gone = map[place]bool{}
			}
			gone[at] = true
		}
		return rows.Err()
	})
	return gone, err
}
