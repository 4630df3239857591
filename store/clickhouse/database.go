package clickhouse

import (
	"context"
	"errors"

	driver "github.com/ClickHouse/clickhouse-go/v2"
)

// database is a connection to a database, with the names of its tables. It is safe for concurrent use.
type database struct {
	conn   driver.Conn
	schema schema
}

func (d *database) exec(ctx context.Context, query string, args ...any) error {
	return d.conn.Exec(ctx, query, args...)
}

// synchronous makes mutations wait for their completion on all replicas.
func synchronous(ctx context.Context) context.Context {
	return driver.Context(ctx, driver.WithSettings(driver.Settings{"mutations_sync": 2}))
}

// mutate changes the rows of a table for which a condition holds, and returns when all replicas have done it. change
// is DELETE, or UPDATE with its assignments.
func (d *database) mutate(ctx context.Context, table, change, where string) error {
	parts, err := d.partitions(ctx, table, where)
	if err != nil {
		return err
	}
	for _, id := range parts {
		err := d.exec(synchronous(ctx), "ALTER TABLE "+d.schema.local(table)+d.schema.on()+" "+change+" IN PARTITION ID "+quote(id)+" WHERE "+where)
		if err != nil {
			return err
		}
	}
	return nil
}

// partitions returns the ids of the partitions with such rows: without a restriction a mutation rewrites
// parts of all partitions.
func (d *database) partitions(ctx context.Context, table, where string) (ids []string, err error) {
	rows, err := d.conn.Query(ctx, "SELECT DISTINCT _partition_id FROM "+table+" WHERE "+where)
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

// Error codes of ClickHouse.
const (
	unknownTable    = 60
	unknownDatabase = 81
)

func isCode(err error, code int32) bool {
	var e *driver.Exception
	return errors.As(err, &e) && e.Code == code
}
