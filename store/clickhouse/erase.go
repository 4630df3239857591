package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/custody-project/custody/store"
)

// Erase implements store.Store. It is EraseAll for one record.
func (s *Store) Erase(ctx context.Context, tenant, run string, seq uint64) error {
	return s.EraseAll(ctx, tenant, run, seq)
}

// EraseAll erases the contents of records of a run, and keeps their seqs, times and
// leaves. The summary of the run is computed from its remaining records. If the
// error is store.ErrNotFound or store.ErrNoRecord, nothing is erased.
//
//	stored --noted in erasures--> no longer returned --parts rewritten--> erased
//
// EraseAll rewrites the parts with such a record (a mutation) and waits for that. The old parts stay on disk for
// old_parts_lifetime, one minute, until the server removes their files. It cannot erase free blocks of the file system,
// nor backups. If it failed or was killed, repeating it completes the erasure.
func (s *Store) EraseAll(ctx context.Context, tenant, run string, seqs ...uint64) error {
	if err := s.eraser.erase(ctx, tenant, run, seqs); err != nil {
		return fmt.Errorf("erase of run %.140q: %w", run, err)
	}
	return nil
}

// eraser erases the contents of records in the database.
type eraser struct {
	db         *database
	reader     reader
	lookup     lookup
	summarizer summarizer
}

func (e eraser) erase(ctx context.Context, tenant, run string, seqs []uint64) error {
	if len(seqs) == 0 {
		return nil
	}
	key, err := e.reader.keyOf(ctx, tenant, run)
	if err != nil {
		return err
	}
	if err := e.wantRecords(ctx, key, seqs); err != nil {
		return err
	}
	values := make([]string, len(seqs))
	for i, seq := range seqs {
		values[i] = fmt.Sprintf("(%s, %s, %d)", quote(key.tenant), quote(run), seq)
	}
	if err := e.db.exec(ctx, "INSERT INTO erasures (tenant, run, seq) VALUES "+strings.Join(values, ", ")); err != nil {
		return err
	}
	if err := e.emptyRows(ctx, key, seqs); err != nil {
		return err
	}
	return e.refold(ctx, key, seqs)
}

// wantRecords fails unless all the records exist, erased or not.
func (e eraser) wantRecords(ctx context.Context, run runKey, seqs []uint64) error {
	var have uint64
	err := e.db.conn.QueryRow(ctx, "SELECT uniqExact(seq) FROM records WHERE "+of(run, seqs)).Scan(&have)
	if err != nil || have == count(seqs) {
		return err
	}
	var markers uint64
	err = e.db.conn.QueryRow(ctx, fmt.Sprintf("SELECT count() FROM segments WHERE tenant = %s AND run = %s", quote(run.tenant), quote(run.run))).Scan(&markers)
	if err != nil {
		return err
	}
	if markers == 0 {
		return store.ErrNotFound
	}
	return store.ErrNoRecord
}

func count(seqs []uint64) uint64 {
	different := map[uint64]bool{}
	for _, seq := range seqs {
		different[seq] = true
	}
	return uint64(len(different))
}

// of returns the condition for records of a run.
func of(run runKey, seqs []uint64) string {
	list := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(seqs)), ", "), "[]")
	return fmt.Sprintf("tenant = %s AND run = %s AND seq IN (%s)", quote(run.tenant), quote(run.run), list)
}

// emptyRows rewrites the parts that contain the records, including copies that are not merged yet.
func (e eraser) emptyRows(ctx context.Context, run runKey, seqs []uint64) error {
	for range 3 { // an ingester may insert another copy concurrently
		left, err := e.unerased(ctx, run, seqs)
		if err != nil || left == 0 {
			return err
		}
		err = e.db.mutate(ctx, "records", `UPDATE kind = '', observer = '', step = '', proc = '',
			path = '', host = '', hash = '', secret = '', rule = '', salt = toFixedString('', 16), body = ''`, of(run, seqs)+unerased)
		if err != nil {
			return err
		}
	}
	return errors.New("the original is still being ingested: stop its sender, and repeat the erasure")
}

// refold computes the summaries of the segments with these records again.
func (e eraser) refold(ctx context.Context, run runKey, seqs []uint64) error {
	rows, err := e.db.conn.Query(ctx, fmt.Sprintf("SELECT DISTINCT first, last FROM segments WHERE tenant = %s AND run = %s AND count > 0", quote(run.tenant), quote(run.run)))
	if err != nil {
		return err
	}
	defer rows.Close()
	var spans [][2]uint64
	for rows.Next() {
		var first, last uint64
		if err := rows.Scan(&first, &last); err != nil {
			return err
		}
		for _, seq := range seqs {
			if first <= seq && seq <= last {
				spans = append(spans, [2]uint64{first, last})
				break
			}
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, span := range spans {
		if err := e.refoldSpan(ctx, run, span[0], span[1]); err != nil {
			return err
		}
	}
	return nil
}

func (e eraser) refoldSpan(ctx context.Context, run runKey, first, last uint64) error {
	r, err := e.summarizer.fold(ctx, run, first, last)
	if err != nil {
		return err
	}
	null := func(there bool, value string) string {
		if !there {
			return "NULL"
		}
		return value
	}
	end, code := "NULL", "NULL"
	if r.End != nil {
		end = instant(*r.End)
	}
	if r.ExitCode != nil {
		code = fmt.Sprint(*r.ExitCode)
	}
	where := fmt.Sprintf("tenant = %s AND run = %s AND first = %d AND last = %d AND count > 0", quote(run.tenant), quote(run.run), first, last)
	set := fmt.Sprintf("start = %s, end = %s, project = %s, template = %s, tier = %s, mode = %s, result = %s, exit_code = %s, findings = %d, gaps = %d, lost = %d",
		null(!r.Start.IsZero(), instant(r.Start)), end, quote(r.Project), quote(r.Template), quote(r.Tier), quote(r.Mode), quote(string(r.Result)), code, r.Findings, r.Gaps, r.Lost)
	return e.db.mutate(ctx, "segments", "UPDATE "+set, where)
}

// eraseLate erases again what was erased during the ingest of the batch, or by an erasure or during an
// ingest that was killed. A marker that was written may have the summary from before the erasure.
func (e eraser) eraseLate(ctx context.Context, batch []*segment, k *known, marked bool) error {
	now, err := e.lookup.readErasures(ctx, batch)
	if err != nil {
		return err
	}
	seqs, late := map[runKey][]uint64{}, map[runKey]bool{}
	for at := range now {
		run := runKey{at.tenant, at.run}
		seqs[run] = append(seqs[run], at.seq)
		late[run] = late[run] || marked || !k.erased[at]
	}
	for run, seqs := range seqs {
		left, err := e.unerased(ctx, run, seqs)
		if err != nil {
			return err
		}
		if !late[run] && left == 0 {
			continue
		}
		if err := e.erase(ctx, asking(run.tenant), run.run, seqs); err != nil {
			return err
		}
	}
	return nil
}

// unerased counts the rows of the records that still have contents.
func (e eraser) unerased(ctx context.Context, run runKey, seqs []uint64) (rows uint64, err error) {
	err = e.db.conn.QueryRow(ctx, "SELECT count() FROM records WHERE "+of(run, seqs)+unerased).Scan(&rows)
	return rows, err
}

// unerased is the last part of a condition; the ingesting user may not read bodies.
const unerased = " AND kind != ''"
