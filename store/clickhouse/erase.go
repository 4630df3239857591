package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"strings"

	driver "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/custody-project/custody/store"
)

// Erase implements store.Store. It is EraseAll for one record.
func (s *Store) Erase(ctx context.Context, tenant, run string, seq uint64) error {
	return s.EraseAll(ctx, tenant, run, seq)
}

// EraseAll removes what records of a run said, and keeps their places, times and
// leaves. The summary of the run becomes what the rest of its records says. The
// errors are store.ErrNotFound and store.ErrNoRecord, and then nothing is erased.
//
//	there --noted in erasures--> not read any more --parts rewritten--> erased
//
// Parts that have such a record are rewritten (a mutation), which is waited for. The old parts stay on the disk for
// old_parts_lifetime, one minute, until the server removes their files. Blocks that the file system has given up, and
// back-ups, are not within its reach. When it failed or was killed in between, repeating it does the rest.
func (s *Store) EraseAll(ctx context.Context, tenant, run string, seqs ...uint64) error {
	if err := s.eraseAll(ctx, tenant, run, seqs); err != nil {
		return fmt.Errorf("erase of run %.140q: %w", run, err)
	}
	return nil
}

func (s *Store) eraseAll(ctx context.Context, tenant, run string, seqs []uint64) error {
	if len(seqs) == 0 {
		return nil
	}
	key, err := s.keyOf(ctx, tenant, run)
	if err != nil {
		return err
	}
	if err := s.wantRecords(ctx, key, seqs); err != nil {
		return err
	}
	values := make([]string, len(seqs))
	for i, seq := range seqs {
		values[i] = fmt.Sprintf("(%s, %s, %d)", quote(key.tenant), quote(run), seq)
	}
	if err := s.exec(ctx, "INSERT INTO erasures (tenant, run, seq) VALUES "+strings.Join(values, ", ")); err != nil {
		return err
	}
	if err := s.emptyRows(ctx, key, seqs); err != nil {
		return err
	}
	return s.refold(ctx, key, seqs)
}

// wantRecords fails unless all the records are there, erased or not.
func (s *Store) wantRecords(ctx context.Context, run runKey, seqs []uint64) error {
	var have uint64
	err := s.db.QueryRow(ctx, "SELECT uniqExact(seq) FROM records WHERE "+of(run, seqs)).Scan(&have)
	if err != nil || have == count(seqs) {
		return err
	}
	var markers uint64
	err = s.db.QueryRow(ctx, fmt.Sprintf("SELECT count() FROM segments WHERE tenant = %s AND run = %s", quote(run.tenant), quote(run.run))).Scan(&markers)
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

// of is the condition for records of a run.
func of(run runKey, seqs []uint64) string {
	list := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(seqs)), ", "), "[]")
	return fmt.Sprintf("tenant = %s AND run = %s AND seq IN (%s)", quote(run.tenant), quote(run.run), list)
}

// synchronous makes a mutation be waited for, on all replicas.
func synchronous(ctx context.Context) context.Context {
	return driver.Context(ctx, driver.WithSettings(driver.Settings{"mutations_sync": 2}))
}

// emptyRows rewrites the parts that have the records, copies that are not merged yet included.
func (s *Store) emptyRows(ctx context.Context, run runKey, seqs []uint64) error {
	for range 3 { // an ingester may bring another copy meanwhile
		left, err := s.unerased(ctx, run, seqs)
		if err != nil || left == 0 {
			return err
		}
		parts, err := s.partitions(ctx, "records", of(run, seqs)+unerased)
		if err != nil {
			return err
		}
		for _, id := range parts {
			err := s.exec(synchronous(ctx), "ALTER TABLE "+s.schema.local("records")+s.schema.on()+` UPDATE kind = '', observer = '', step = '', proc = '',
				path = '', host = '', hash = '', secret = '', rule = '', salt = toFixedString('', 16), body = '' IN PARTITION ID `+quote(id)+
				" WHERE "+of(run, seqs)+unerased)
			if err != nil {
				return err
			}
		}
	}
	return errors.New("the original keeps coming in: stop what sends it, and repeat the erasure")
}

// partitions returns the ids of those that have such rows: a mutation goes through
// every part of the partitions it is not kept out of.
func (s *Store) partitions(ctx context.Context, table, where string) (ids []string, err error) {
	rows, err := s.db.Query(ctx, "SELECT DISTINCT _partition_id FROM "+table+" WHERE "+where)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// refold computes the summaries of the segments with these records again.
func (s *Store) refold(ctx context.Context, run runKey, seqs []uint64) error {
	rows, err := s.db.Query(ctx, fmt.Sprintf("SELECT DISTINCT first, last FROM segments WHERE tenant = %s AND run = %s AND count > 0", quote(run.tenant), quote(run.run)))
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
		if err := s.refoldSpan(ctx, run, span[0], span[1]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) refoldSpan(ctx context.Context, run runKey, first, last uint64) error {
	r, err := s.fold(ctx, run, first, last)
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
	parts, err := s.partitions(ctx, "segments", where)
	if err != nil {
		return err
	}
	for _, id := range parts {
		err := s.exec(synchronous(ctx), "ALTER TABLE "+s.schema.local("segments")+s.schema.on()+" UPDATE "+set+" IN PARTITION ID "+quote(id)+" WHERE "+where)
		if err != nil {
			return err
		}
	}
	return nil
}

// eraseLate erases again what was erased while the batch was on its way, or when an
// erasure or an ingest before it was killed. A marker that was written may have a summary of before.
func (s *Store) eraseLate(ctx context.Context, batch []*segment, k *known, marked bool) error {
	now, err := s.readErasures(ctx, batch)
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
		left, err := s.unerased(ctx, run, seqs)
		if err != nil {
			return err
		}
		if !late[run] && left == 0 {
			continue
		}
		if err := s.eraseAll(ctx, asking(run.tenant), run.run, seqs); err != nil {
			return err
		}
	}
	return nil
}

// unerased counts the rows of the records that still say something.
func (s *Store) unerased(ctx context.Context, run runKey, seqs []uint64) (rows uint64, err error) {
	err = s.db.QueryRow(ctx, "SELECT count() FROM records WHERE "+of(run, seqs)+unerased).Scan(&rows)
	return rows, err
}

// unerased is the rest of a condition; the ingesting user may not read bodies.
const unerased = " AND kind != ''"
