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

// Migration N of the sorted files migrates the schema from version N-1 to N. A released file is never changed, only
// followed by another. ClickHouse has no transactions over DDL: each statement can be repeated, and the version is
// written when all statements of a file have succeeded, so that a migration that was interrupted, or that several
// processes run concurrently, has the same result.
//
//go:embed migrations/*.sql
var migrations embed.FS

// TooNewError: a later version of Custody has changed the schema.
type TooNewError struct{ Have, Known int }

// Error implements error.
func (e *TooNewError) Error() string {
	return fmt.Sprintf("the store has schema %d, this version of custody supports up to %d", e.Have, e.Known)
}

// Hint returns the remedy.
func (e *TooNewError) Hint() string { return "use the newer version of custody that wrote this store" }

// migrateFor bounds how long a process retries while others change the same tables.
const migrateFor = 30 * time.Second

// migrator migrates the schema.
type migrator struct{ db *database }

// run creates the database if it does not exist, and migrates the tables to the schema of the options.
func (m migrator) run(ctx context.Context, o *driver.Options) error {
	err := m.db.conn.Ping(ctx)
	if isCode(err, unknownDatabase) {
		err = createDatabase(ctx, *o, m.db.schema.on())
	}
	if err == nil {
		err = m.migrate(ctx)
	}
	if err == nil {
		err = m.retain(ctx)
	}
	return err
}

func (m migrator) migrate(ctx context.Context) error {
	files, err := fs.Glob(migrations, "migrations/*.sql") // sorted
	if err != nil {
		return err
	}
	have, err := m.version(ctx)
	if err != nil {
		return err
	}
	if have > len(files) {
		return &TooNewError{have, len(files)}
	}
	if have == len(files) {
		return nil
	}
	return m.migrateTo(ctx, files, have)
}

func (m migrator) migrateTo(ctx context.Context, files []string, have int) error {
	ctx, cancel := context.WithTimeout(ctx, migrateFor)
	defer cancel()
	err := m.db.exec(ctx, m.db.schema.versions())
	for i := have; i < len(files) && err == nil; i++ {
		err = m.apply(ctx, files[i], i+1)
	}
	return err
}

// apply runs a file's statements and retries each until it succeeds or the time is over: it fails while another
// process runs the same one.
func (m migrator) apply(ctx context.Context, file string, version int) error {
	statements, err := m.db.schema.statements(file)
	if err != nil {
		return err
	}
	for _, stmt := range append(statements, fmt.Sprintf("INSERT INTO %s (version) VALUES (%d)", m.db.schema.local("schema_versions"), version)) {
		for tries := 0; ; tries++ {
			err := m.db.exec(ctx, stmt)
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

// version returns the version of the schema, 0 if there are no tables.
func (m migrator) version(ctx context.Context) (int, error) {
	var have uint32
	err := m.db.conn.QueryRow(ctx, "SELECT max(version) FROM "+m.db.schema.local("schema_versions")).Scan(&have)
	if isCode(err, unknownTable) {
		return 0, nil
	}
	return int(have), err
}

// createDatabase creates the DSN's database if it does not exist.
func createDatabase(ctx context.Context, o driver.Options, on string) error {
	database := o.Auth.Database
	o.Auth.Database = ""
	db, err := driver.Open(&o)
	if err != nil {
		return err
	}
	return errors.Join(db.Exec(ctx, "CREATE DATABASE IF NOT EXISTS "+name(database)+on), db.Close())
}

// retain sets the tables' retention to Options.Retain, unless it is set already. The server computes the times of
// existing parts again, in the background.
func (m migrator) retain(ctx context.Context) error {
	if m.db.schema.Retain == nil {
		return nil
	}
	ttl, comment := m.db.schema.retention()
	table := m.db.schema.local("records")
	var have string
	err := m.db.conn.QueryRow(ctx, "SELECT comment FROM system.tables WHERE database = currentDatabase() AND name = {table:String}",
		driver.Named("table", table)).Scan(&have)
	if err != nil || have == comment {
		return err
	}
	return m.db.exec(ctx, "ALTER TABLE "+table+m.db.schema.on()+" MODIFY COMMENT "+quote(comment)+", MODIFY TTL "+ttl)
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
