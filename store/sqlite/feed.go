package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/custody-project/custody/store"
)

func addFeed(ctx context.Context, tx *sql.Tx, seg store.Segment) error {
	_, err := tx.ExecContext(ctx,
		"INSERT INTO feed (mark, tenant, host, run, idx, first, last, count) VALUES (randomblob(8),?,?,?,?,?,?,?)",
		seg.Tenant, seg.Host, seg.Run, int64(seg.Index), int64(seg.First), int64(seg.Last), len(seg.Frames))
	return err
}

// Feed returns segments in the order of ingestion, after a
// cursor; limit 0 means no limit. If this database has replaced that of the cursor, or was restored
// to an older state, Feed starts at the beginning.
func (s *Store) Feed(ctx context.Context, after string, limit int) ([]store.Ref, error) {
	id, err := s.feedID(ctx, after)
	if err != nil {
		return nil, s.wrap("read feed", err)
	}
	if limit <= 0 {
		limit = -1
	}
	rows, err := s.db.QueryContext(ctx, `SELECT id, mark, tenant, host, run, idx, first, last, count FROM feed
		WHERE id > ? ORDER BY id LIMIT ?`, id, limit)
	if err != nil {
		return nil, s.wrap("read feed", err)
	}
	defer rows.Close()
	var refs []store.Ref
	for rows.Next() {
		var r store.Ref
		var mark []byte
		if err := rows.Scan(&id, &mark, &r.Tenant, &r.Host, &r.Run, &r.Index, &r.First, &r.Last, &r.Count); err != nil {
			return nil, s.wrap("read feed", rowError(rows, "feed", r.Run, err))
		}
		r.Cursor = fmt.Sprintf("%d-%x", id, mark)
		refs = append(refs, r)
	}
	return refs, s.wrap("read feed", rows.Err())
}

// feedID returns the id after which a cursor continues: 0 unless this database made it.
func (s *Store) feedID(ctx context.Context, cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	number, text, _ := strings.Cut(cursor, "-")
	id, err := strconv.ParseInt(number, 10, 64)
	mark, markErr := hex.DecodeString(text)
	if err := errors.Join(err, markErr); err != nil {
		return 0, fmt.Errorf("cursor %.40q is not one of this store's: %w", cursor, err)
	}
	var have []byte
	err = s.db.QueryRowContext(ctx, "SELECT mark FROM feed WHERE id = ?", id).Scan(&have)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !bytes.Equal(have, mark) {
		return 0, nil
	}
	return id, err
}
