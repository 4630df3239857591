package sqlite

import (
	"database/sql"
	"errors"

	"github.com/custody-project/custody/store"
)

// searchVersion is the schema version whose columns are filled from existing bodies.
const searchVersion = 2

// fillRows rows are read before they are written: a statement must not change
// the table that another is reading.
const fillRows = 1000

// fillColumns fills the searchable columns of records of an older schema.
// A record that cannot be parsed keeps its row and is found by its seq only.
func fillColumns(tx *sql.Tx) error {
	update, err := tx.Prepare("UPDATE records SET path = ?, host = ?, hash = ?, secret = ?, rule = ? WHERE run = ? AND seq = ?")
	if err != nil {
		return err
	}
	defer update.Close()
	run, seq := "", int64(-1)
	for {
		heads, err := headsAfter(tx, &run, &seq)
		if err != nil || heads == nil {
			return err
		}
		for _, h := range heads {
			args := append(searchColumns(h), h.Run, int64(h.Seq))
			if _, err := update.Exec(args...); err != nil {
				return err
			}
		}
	}
}

// headsAfter returns the heads of the next rows with values to fill in,
// and advances run and seq past the rows that it read. It returns nil at the end.
func headsAfter(tx *sql.Tx, run *string, seq *int64) ([]store.Head, error) {
	rows, err := tx.Query("SELECT run, seq, body FROM records WHERE (run, seq) > (?, ?) ORDER BY run, seq LIMIT ?", *run, *seq, fillRows)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var heads []store.Head
	for rows.Next() {
		var body sql.RawBytes
		if err := rows.Scan(run, seq, &body); err != nil {
			return nil, err
		}
		if heads == nil {
			heads = make([]store.Head, 0, fillRows)
		}
		h, err := store.ParseHead(body)
		if errors.Is(err, store.ErrMalformed) || h.Path+h.Host+h.Hash+h.Secret+h.Rule == "" {
			continue
		}
		h.Run, h.Seq = *run, uint64(*seq)
		heads = append(heads, h)
	}
	return heads, rows.Err()
}
