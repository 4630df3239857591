// Package entries indexes the entries of a host's log by subject: a manifest by run and segment, an erasure by run and
// record. The log uses the index to refuse a second history of a run, and a monitor to detect one. The index is an SQLite
// file that can be rebuilt from the log's entries.
package entries

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"

	_ "modernc.org/sqlite" // the driver

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/internal/regular"
)

// Errors of a Conflict.
var (
	// ErrTwice: an earlier entry about the same segment or record has different contents.
	ErrTwice = errors.New("the log has two contradicting entries about one segment or record")
	// ErrAgain: an earlier entry is identical.
	ErrAgain = errors.New("the log has a duplicate entry")
	// ErrOrder: the log lacks the entry of the preceding segment.
	ErrOrder = errors.New("the preceding segment is not in the log")
	// ErrUnknown: this version does not know the kind of the entry.
	ErrUnknown = errors.New("the entry is of an unknown kind")
)

// Conflict is an entry that contradicts the entries before it. Err is one of the errors above.
type Conflict struct {
	Index uint64
	Leaf  statement.Leaf // zero with ErrUnknown
	First uint64         // with ErrTwice and ErrAgain: the index of the earlier entry
	Err   error
}

// Error implements error.
func (c *Conflict) Error() string {
	switch c.Err {
	case ErrTwice:
		return fmt.Sprintf("%v: entry %d is %s %s %d, entry %d another", c.Err, c.First, c.Leaf.Of, c.Leaf.Run, c.Leaf.N, c.Index)
	case ErrAgain:
		return fmt.Sprintf("%v: entry %d is %s %s %d, entry %d the same", c.Err, c.First, c.Leaf.Of, c.Leaf.Run, c.Leaf.N, c.Index)
	case ErrOrder:
		return fmt.Sprintf("%v: entry %d is segment %d of run %s", c.Err, c.Index, c.Leaf.N, c.Leaf.Run)
	}
	return fmt.Sprintf("%v: entry %d", c.Err, c.Index)
}

// Unwrap returns Err.
func (c *Conflict) Unwrap() error { return c.Err }

// Index is safe for concurrent use. Several processes may have the same file open.
type Index struct{ db *sql.DB }

const schema = `
CREATE TABLE IF NOT EXISTS entries (of TEXT, run TEXT, n INTEGER, digest BLOB NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (of, run, n)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
PRAGMA user_version = 1`

// Open opens the index in a file and creates it if it does not exist. It replaces a file that is not an index.
func Open(path string) (*Index, error) {
	x, err := open(path, "NORMAL")
	if err == nil {
		return x, nil
	}
	for _, file := range regular.DatabaseFiles(path) {
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			return nil, fmt.Errorf("index of the log's entries: %w", err)
		}
	}
	if x, err = open(path, "NORMAL"); err != nil {
		return nil, fmt.Errorf("index of the log's entries: %w", err)
	}
	return x, nil
}

// OpenKept is Open for an index whose contents cannot be rebuilt: it returns an error if the file is not an index, and
// changes survive a power loss.
func OpenKept(path string) (*Index, error) {
	x, err := open(path, "FULL")
	if err != nil {
		return nil, fmt.Errorf("index of the log's entries: %s: %w", path, err)
	}
	return x, nil
}

func open(path, synchronous string) (*Index, error) {
	info, err := os.Lstat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if err := regular.CheckDatabase(path); err != nil {
		return nil, err
	}
	f, err := regular.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // SQLite would create a file that others can read
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	dsn := (&url.URL{Scheme: "file", Opaque: url.PathEscape(path)}).String()
	db, err := sql.Open("sqlite", dsn+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous("+synchronous+")&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(schema); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Index{db}, nil
}

// Close closes the file.
func (x *Index) Close() error { return x.db.Close() }

// Tx is a transaction on the index.
type Tx struct {
	ctx context.Context
	tx  *sql.Tx
}

// Do calls f in a transaction. It commits the changes if f returns nil and discards them otherwise.
func (x *Index) Do(ctx context.Context, f func(*Tx) error) error {
	tx, err := x.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("index of the log's entries: %w", err)
	}
	if err := f(&Tx{ctx, tx}); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("index of the log's entries: %w", err)
	}
	return nil
}

// Note returns the value stored under a name, or nil if there is none.
func (t *Tx) Note(name string) (value []byte, err error) {
	err = t.tx.QueryRowContext(t.ctx, "SELECT value FROM notes WHERE name = ?", name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return value, err
}

// Keep stores a value under a name.
func (t *Tx) Keep(name string, value []byte) error {
	_, err := t.tx.ExecContext(t.ctx, "INSERT OR REPLACE INTO notes VALUES (?, ?)", name, value)
	return err
}

// Clear empties the index.
func (t *Tx) Clear() error {
	_, err := t.tx.ExecContext(t.ctx, "DELETE FROM entries; DELETE FROM notes")
	return err
}

// Find returns the first entry about the same subject as l, and its contents.
func (t *Tx) Find(l statement.Leaf) (index uint64, digest merkle.Hash, found bool, err error) {
	if l.Of == statement.OfRotation { // it does not name the key
		return 0, digest, false, nil
	}
	var raw []byte
	var at int64
	err = t.tx.QueryRowContext(t.ctx, "SELECT at, digest FROM entries WHERE of = ? AND run = ? AND n = ?", l.Of, l.Run, int64(l.N)).Scan(&at, &raw)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, digest, false, nil
	case err == nil && len(raw) != len(digest):
		err = errors.New("a digest of another length")
	}
	if err != nil {
		return 0, digest, false, fmt.Errorf("index of the log's entries: %w", err)
	}
	return uint64(at), merkle.Hash(raw), true, nil
}

// Take adds the entry at index, and returns a conflict with earlier entries, or nil. Find continues to return the first
// entry about a subject.
func (t *Tx) Take(index uint64, entry []byte) (*Conflict, error) {
	l, err := statement.ParseLeaf(entry)
	switch {
	case err != nil:
		return &Conflict{Index: index, Err: ErrUnknown}, nil
	case l.Of == statement.OfRotation:
		return nil, nil
	}
	first, digest, found, err := t.Find(l)
	switch {
	case err != nil:
		return nil, err
	case found && digest != l.Digest:
		return &Conflict{index, l, first, ErrTwice}, nil
	case found:
		return &Conflict{index, l, first, ErrAgain}, nil
	}
	if _, err := t.tx.ExecContext(t.ctx, "INSERT INTO entries VALUES (?, ?, ?, ?, ?)", l.Of, l.Run, int64(l.N), l.Digest[:], int64(index)); err != nil {
		return nil, fmt.Errorf("index of the log's entries: %w", err)
	}
	if l.Of != statement.OfManifest || l.N == 0 {
		return nil, nil
	}
	before := l
	before.N--
	if _, _, found, err = t.Find(before); err == nil && !found {
		return &Conflict{Index: index, Leaf: l, Err: ErrOrder}, nil
	}
	return nil, err
}
