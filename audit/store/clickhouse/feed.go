package clickhouse

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/custody-project/custody/audit/store"
)

// feedPlace tells segments of one stamp apart, and orders them.
const feedPlace = "hex(sipHash128(tenant, run, idx, first, last, digest))"

// Feed implements store.Store. Order is that of the markers' stamps. Several processes stamp and
// commit at once, so that a stamp says only about when a marker appears; the feed therefore stays
// Settle behind the server's clock, and Ingest sees to it that each marker is visible before the
// feed comes by (see mark). At its end it waits, at most Settle, for segments that are not that old yet.
func (s *Store) Feed(ctx context.Context, after string, limit int) ([]store.Ref, error) {
	stamp, at, err := readCursor(after)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(s.settle)
	for {
		refs, younger, err := s.feed(ctx, stamp, at, limit)
		if err != nil {
			return nil, fmt.Errorf("read feed: %w", err)
		}
		left := time.Until(deadline)
		if len(refs) > 0 || !younger || left <= 0 {
			return refs, nil
		}
		if err := sleep(ctx, min(left, s.settle/4+time.Millisecond)); err != nil {
			return nil, fmt.Errorf("read feed: %w", err)
		}
	}
}

// feed returns what has settled behind a place, and whether there is anything that has not.
func (s *Store) feed(ctx context.Context, stamp int64, at string, limit int) (refs []store.Ref, younger bool, err error) {
	behind := fmt.Sprintf("ingested >= fromUnixTimestamp64Micro(toInt64(%d), 'UTC') AND (toUnixTimestamp64Micro(ingested), %s) > (%[1]d, %s)", stamp, feedPlace, quote(at))
	query := fmt.Sprintf(`SELECT tenant, host, run, idx, first, last, count, toUnixTimestamp64Micro(ingested) AS stamp, %s AS at,
		ingested <= now64(6, 'UTC') - toIntervalMicrosecond(%d) AS settled
		FROM segments WHERE %s ORDER BY stamp, at`, feedPlace, s.settle.Microseconds(), behind)
	if limit > 0 {
		query += fmt.Sprintf(" LIMIT %d", limit)
	}
	rows, err := s.db.Query(ctx, query)
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	for rows.Next() {
		var r store.Ref
		var settled uint8
		if err := rows.Scan(&r.Tenant, &r.Host, &r.Run, &r.Index, &r.First, &r.Last, &r.Count, &stamp, &at, &settled); err != nil {
			return nil, false, err
		}
		if settled == 0 {
			return refs, true, nil
		}
		r.Cursor = strconv.FormatInt(stamp, 10) + "-" + at
		refs = append(refs, r)
	}
	return refs, false, rows.Err()
}

func readCursor(cursor string) (stamp int64, at string, err error) {
	if cursor == "" {
		return 0, "", nil
	}
	number, at, _ := strings.Cut(cursor, "-")
	stamp, err = strconv.ParseInt(number, 10, 64)
	if raw, hexErr := hex.DecodeString(at); err != nil || hexErr != nil || len(raw) != 16 || stamp < 0 {
		return 0, "", fmt.Errorf("cursor %.40q is none of this store's", cursor)
	}
	return stamp, at, nil
}
