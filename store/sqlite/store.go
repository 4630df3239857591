// Package sqlite is the store of one machine: a single SQLite file in WAL mode, which several processes write and read
// concurrently.
//
// Segments of one call are ingested in one transaction, all or
// none of them. Ingesting one again changes nothing; a record that differs from the stored one with
// the same seq is refused and reported, never overwritten.
//
// An erased record keeps its row, with only its time and leaf. Removing
// its bytes from the file requires rewriting the file: see Erase.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/store"
)

var _ store.Store = (*Store)(nil)

// busyTimeout bounds a writer's wait for other processes' transactions. A
// full segment takes well under a second, so this suffices for many waiting writers.
const busyTimeout = 15 * time.Second

// Store is an open database. It is safe for concurrent use; writers wait for each other, readers do not wait.
type Store struct {
	path string
	db   *sql.DB
}

// CorruptError: SQLite found the file damaged, or not a database.
type CorruptError struct {
	Path string
	Err  error
}

// Error implements error.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("the store %s is damaged: %v", e.Path, e.Err)
}

// Unwrap returns SQLite's error.
func (e *CorruptError) Unwrap() error { return e.Err }

// Hint returns the remedy.
func (e *CorruptError) Hint() string {
	return "no record is lost: the store is only an index over the logs in the runs' directories; `custody rebuild` builds a new one from them"
}

// Open opens the database for reading and writing and migrates its schema. It creates the database if it does not exist,
// readable only by its owner, like the logs.
//
// SQLite gives its other files the same mode. An existing file must not be
// opened without SQLite: closing it would release SQLite's locks (fcntl).
func Open(ctx context.Context, path string) (*Store, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return open(ctx, path, "mode=rwc&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=secure_delete(1)&_txlock=immediate"+
		"&_pragma=cache_size(-16000)&_pragma=wal_autocheckpoint(4000)", migrate) // KiB and pages: room for what a few segments change
}

// OpenReader opens an existing database for reading, while other processes may write to
// it. The error is fs.ErrNotExist if there is no database yet.
func OpenReader(ctx context.Context, path string) (*Store, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	// The file is opened for writing, because the first reader after a crash must
	// recover the write-ahead log; query_only prevents changes through SQL.
	return open(ctx, path, "mode=rw&_pragma=query_only(1)", checkVersion)
}

func open(ctx context.Context, path, options string, prepare func(context.Context, *sql.DB) error) (*Store, error) {
	if err := regular.CheckDatabase(path); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	dsn := fmt.Sprintf("file:%s?_pragma=busy_timeout(%d)&%s",
		(&url.URL{Path: path}).EscapedPath(), busyTimeout.Milliseconds(), options)
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	db.SetMaxOpenConns(8)
	s := &Store{path: path, db: db}
	if err := retryBusy(ctx, func() error { return prepare(ctx, db) }); err != nil {
		db.Close()
		return nil, s.wrap("open store", err)
	}
	return s, nil
}

// Close waits for running queries and closes the database.
func (s *Store) Close() error {
	return s.wrap("close store", s.db.Close())
}

// retryBusy retries what SQLite refuses without waiting for busy_timeout: the
// change to WAL mode and the recovery after a crash, when several processes
// open the file at the same moment. It stops when ctx ends, and after busyTimeout.
func retryBusy(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, busyTimeout)
	defer cancel()
	for {
		err := do()
		if err == nil || !isCode(err, lib.SQLITE_BUSY) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// AccessError: the file cannot be written, or stays locked. It names the file that causes it.
type AccessError struct {
	Path string
	Err  error
}

// Error implements error.
func (e *AccessError) Error() string { return fmt.Sprintf("the store %s: %v", e.Path, e.Err) }

// Unwrap returns SQLite's error.
func (e *AccessError) Unwrap() error { return e.Err }

// Hint returns the remedy.
func (e *AccessError) Hint() string {
	switch {
	case isCode(e.Err, lib.SQLITE_BUSY):
		return "another process has locked it: `fuser " + e.Path + "` lists those that have it open"
	case isCode(e.Err, lib.SQLITE_FULL):
		return "free space on its disk"
	}
	return "it and its directory must be writable, with free space on the disk: check owner, mode, mount and `df`"
}

// undefined reports whether a table, column or index that this package makes is missing in the database, or exists
// before the version that adds it.
func undefined(err error) bool {
	return isCode(err, lib.SQLITE_ERROR) && slices.ContainsFunc([]string{"no such column", "no such table", "no such index", "already exists"},
		func(text string) bool { return strings.Contains(err.Error(), text) })
}

// wrap adds the operation and turns damage into a CorruptError.
func (s *Store) wrap(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case isCode(err, lib.SQLITE_CORRUPT), isCode(err, lib.SQLITE_NOTADB), undefined(err):
		err = &CorruptError{Path: s.path, Err: err}
	case isCode(err, lib.SQLITE_READONLY), isCode(err, lib.SQLITE_BUSY), isCode(err, lib.SQLITE_FULL), isCode(err, lib.SQLITE_IOERR):
		err = &AccessError{Path: s.path, Err: err}
	case isCode(err, lib.SQLITE_CANTOPEN):
		if _, statErr := os.Stat(filepath.Dir(s.path)); errors.Is(statErr, fs.ErrNotExist) {
			err = statErr
		} else {
			err = &AccessError{Path: s.path, Err: err}
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// isCode compares the primary result code; SQLite puts details in the higher bits.
func isCode(err error, code int) bool {
	var e *driver.Error
	return errors.As(err, &e) && e.Code()&0xff == code
}

// inTx calls do in one transaction, rolled back unless do and the commit succeed.
func (s *Store) inTx(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
