package clickhouse

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/custody-project/custody/store"
)

// maxStamps bounds how often segments are stamped again before the server counts as too slow.
const maxStamps = 5

// feed is the table that lists the segments in the order of ingestion.
type feed struct {
	db     *database
	settle time.Duration // Options.Settle
}

// add adds segments to the feed. Several processes stamp and commit concurrently, so that a stamp is only
// approximately the time when its row appears. Readers of the feed therefore stay Settle behind the server's clock, and a
// row is reliable if it became visible within half of Settle, by this process's clock. After a slower
// commit add inserts a second row.
func (f feed) add(ctx context.Context, segs []*segment) error {
	for range maxStamps {
		begin := time.Now()
		stamp, err := f.stamp(ctx)
		if err != nil {
			return err
		}
		batch, err := f.db.conn.PrepareBatch(ctx, "INSERT INTO feed (stamp, tenant, host, run, idx, first, last, count)")
		if err != nil {
			return err
		}
		for i, in := range segs { // one call's keep their order
			err := batch.Append(stamp.Add(time.Duration(i)*time.Microsecond), in.Tenant, in.Host, in.Run, in.Index, in.First, in.Last, uint64(len(in.Frames)))
			if err != nil {
				return errors.Join(err, batch.Abort())
			}
		}
		if err := batch.Send(); err != nil {
			return err
		}
		if time.Since(begin) < f.settle/2 {
			return nil
		}
	}
	return fmt.Errorf("the server takes longer than %s to commit a row: the feed needs a greater Options.Settle", f.settle/2)
}

// stamp returns the time of the server, and never one before the latest stamp: a clock that
// was set back must not put segments where readers of the feed have already been.
func (f feed) stamp(ctx context.Context) (now time.Time, err error) {
	err = f.db.conn.QueryRow(ctx, "SELECT greatest(now64(6, 'UTC'), max(stamp) + toIntervalMicrosecond(1)) FROM feed").Scan(&now)
	return now, err
}

// Feed implements store.Store. The order is that of the stamps: see feed.add. At the end of the feed it
// waits, at most Settle, for segments that are not that old yet.
func (s *Store) Feed(ctx context.Context, after string, limit int) ([]store.Ref, error) {
	behind, err := readCursor(after)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(s.feed.settle)
	for {
		left := time.Until(deadline) // before the query: what existed at the beginning has settled by then
		refs, younger, err := s.feed.read(ctx, behind, limit)
		if err != nil {
			return nil, fmt.Errorf("read feed: %w", err)
		}
		if len(refs) > 0 || !younger || left <= 0 {
			return refs, nil
		}
		if err := sleep(ctx, min(left, s.feed.settle/4)+time.Millisecond); err != nil {
			return nil, fmt.Errorf("read feed: %w", err)
		}
	}
}

// cursor is the position of a row of the feed.
type cursor struct {
	stamp int64 // microseconds since 1970
	id    string
}

// feedID distinguishes and orders rows with one stamp.
const feedID = "hex(sipHash128(tenant, run, idx, first, last, count))"

// read returns the settled rows after a position, and whether there are any that have not settled.
func (f feed) read(ctx context.Context, behind cursor, limit int) (refs []store.Ref, younger bool, err error) {
	from := fmt.Sprintf("fromUnixTimestamp64Micro(toInt64(%d), 'UTC')", behind.stamp)
	query := fmt.Sprintf(`SELECT tenant, host, run, idx, first, last, count, toUnixTimestamp64Micro(stamp), %s AS id,
		stamp <= now64(6, 'UTC') - toIntervalMicrosecond(%d) FROM feed
		WHERE stamp >= %s AND (stamp > %[3]s OR id > %s) ORDER BY stamp, id`, feedID, f.settle.Microseconds(), from, quote(behind.id))
	if limit > 0 {
		query += fmt.Sprintf(" LIMIT %d", limit)
	}
	rows, err := f.db.conn.Query(ctx, query)
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	for rows.Next() {
		var r store.Ref
		var c cursor
		var settled uint8
		if err := rows.Scan(&r.Tenant, &r.Host, &r.Run, &r.Index, &r.First, &r.Last, &r.Count, &c.stamp, &c.id, &settled); err != nil {
			return nil, false, err
		}
		if settled == 0 {
			return refs, true, nil
		}
		r.Cursor = strconv.FormatInt(c.stamp, 10) + "-" + c.id
		refs = append(refs, r)
	}
	return refs, false, rows.Err()
}

func readCursor(text string) (c cursor, err error) {
	if text == "" {
		return c, nil
	}
	number, id, _ := strings.Cut(text, "-")
	c.stamp, err = strconv.ParseInt(number, 10, 64)
	if raw, hexErr := hex.DecodeString(id); err != nil || hexErr != nil || len(raw) != 16 || c.stamp < 0 {
		return c, fmt.Errorf("cursor %.40q is not one of this store's", text)
	}
	c.id = strings.ToUpper(id)
	return c, nil
}
