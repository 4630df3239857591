package clickhouse

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	driver "github.com/ClickHouse/clickhouse-go/v2"
)

// Migration N of the sorted files takes the schema from version N-1 to N. A released file is never changed, only
// followed by another. ClickHouse has no transactions over DDL: each statement can be repeated, and the version is
// written when all of a file's have worked, so that a migration that was interrupted, or that several processes do
// concurrently, ends the same.
//
//go:embed migrations/*.sql
var migrations embed.FS

// TooNewError means that a later Custody has changed the schema.
type TooNewError struct{ Have, Known int }

// Error implements error.
func (e *TooNewError) Error() string {
	return fmt.Sprintf("the store has schema %d, this custody knows up to %d", e.Have, e.Known)
}

// Hint returns what to do about it.
func (e *TooNewError) Hint() string { return "use the newer custody that wrote this store" }

// migrateFor is how long a process keeps trying while others change the same tables.
const migrateFor = 30 * time.Second

func (s *Store) migrate(ctx context.Context) error {
	files, err := fs.Glob(migrations, "migrations/*.sql") // sorted
	if err != nil {
		return err
	}
	have, err := s.version(ctx)
	if err != nil {
		return err
	}
	if have > len(files) {
		return &TooNewError{have, len(files)}
	}
	if have == len(files) {
		return nil
	}
	return s.migrateTo(ctx, files, have)
}

func (s *Store) migrateTo(ctx context.Context, files []string, have int) error {
	ctx, cancel := context.WithTimeout(ctx, migrateFor)
	defer cancel()
	err := s.exec(ctx, s.schema.versions())
	for i := have; i < len(files) && err == nil; i++ {
		err = s.apply(ctx, files[i], i+1)
	}
	return err
}

// apply runs a file's statements, each until it works or time is over: another
// process that is at the same one makes it fail for a while.
func (s *Store) apply(ctx context.Context, file string, version int) error {
	statements, err := s.schema.statements(file)
	if err != nil {
		return err
	}
	for _, stmt := range append(statements, fmt.Sprintf("INSERT INTO %s (version) VALUES (%d)", s.schema.local("schema_versions"), version)) {
		for tries := 0; ; tries++ {
			err := s.exec(ctx, stmt)
			if err == nil {
				break
			}
			if tries == 5 || ctx.Err() != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if err := sleep(ctx, 100*time.Millisecond<<tries); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return nil
}

// version is that of the schema, 0 where there are no tables.
func (s *Store) version(ctx context.Context) (int, error) {
	var have uint32
	err := s.db.QueryRow(ctx, "SELECT max(version) FROM "+s.schema.local("schema_versions")).Scan(&have)
	if isCode(err, unknownTable) {
		return 0, nil
	}
	return int(have), err
}

// createDatabase makes the DSN's database unless it is there.
func createDatabase(ctx context.Context, o driver.Options, on string) error {
	database := o.Auth.Database
	o.Auth.Database = ""
	db, err := driver.Open(&o)
	if err != nil {
		return err
	}
	return errors.Join(db.Exec(ctx, "CREATE DATABASE IF NOT EXISTS "+name(database)+on), db.Close())
}

// retain makes the tables keep records for Options.Retain, unless they do already. The times of existing parts are
// computed again, in the background.
func (s *Store) retain(ctx context.Context) error {
	if s.schema.Retain == nil {
		return nil
	}
	ttl, comment := s.schema.retention()
	table := s.schema.local("records")
	var have string
	err := s.db.QueryRow(ctx, "SELECT comment FROM system.tables WHERE database = currentDatabase() AND name = {table:String}",
		driver.Named("table", table)).Scan(&have)
	if err != nil || have == comment {
		return err
	}
	return s.exec(ctx, "ALTER TABLE "+table+s.schema.on()+" MODIFY COMMENT "+quote(comment)+", MODIFY TTL "+ttl)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
