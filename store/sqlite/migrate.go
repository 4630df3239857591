package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
)

// Migration N of the sorted files takes the schema from user_version N-1 to N.
// A released file is never changed, only followed by another.
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

func migrationFiles() ([]string, error) {
	return fs.Glob(migrations, "migrations/*.sql") // sorted
}

// checkVersion refuses a schema that this code cannot read.
func checkVersion(ctx context.Context, db *sql.DB) error {
	files, err := migrationFiles()
	if err != nil {
		return err
	}
	have, err := version(ctx, db)
	if err != nil {
		return err
	}
	if have > len(files) {
		return &TooNewError{have, len(files)}
	}
	if have < len(files) {
		return fmt.Errorf("the store has the old schema %d; any custody run brings it to %d", have, len(files))
	}
	return nil
}

// migrate applies the missing migrations, in one transaction for which other processes wait.
func migrate(ctx context.Context, db *sql.DB) error {
	files, err := migrationFiles()
	if err != nil {
		return err
	}
	// The common case takes no lock.
	if have, err := version(ctx, db); err != nil || have == len(files) {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no effect after Commit
	have, err := version(ctx, tx)
	if err != nil {
		return err
	}
	if have > len(files) {
		return &TooNewError{have, len(files)}
	}
	for i := have; i < len(files); i++ {
		if err := apply(tx, files[i], i+1); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func apply(tx *sql.Tx, file string, version int) error {
	text, err := migrations.ReadFile(file)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(string(text)); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if version == searchVersion {
		if err := fillColumns(tx); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	_, err = tx.Exec(fmt.Sprintf("PRAGMA user_version = %d", version))
	return err
}

func version(ctx context.Context, q interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}) (v int, err error) {
	err = q.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v)
	return v, err
}
