// Package clickhouse is the store of a fleet: a ClickHouse database into which several processes ingest many hosts'
// records concurrently.
//
// Tables: records (a row a record), segments (a row a segment: its signed
// manifest, and what it adds to the run's summary), feed and erasures. ClickHouse has
// neither unique keys nor transactions over tables, so that exactly one row for
// (run, seq) is a matter of the order in which things are done; see Store.
package clickhouse

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	driver "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/custody-project/custody/store"
)

var _ store.Store = (*Store)(nil)

// Store is an open database. It is safe for concurrent use by goroutines and processes; it holds no state in memory
// between calls.
//
// Ingest has these steps. Killed at any of them it has not been acknowledged, and the process that gets the segments
// next begins at the first:
//
//	1 look ---- who has rows, manifests, erasures of these runs; conflicts end here
//	|           killed: nothing is stored
//	2 rows ---- those that are missing, in one insert with a token made of their leaves
//	|           killed while it is on its way: the rows are there in whole or by partition (day and
//	|           class), or come later still; step 1 finds those that are there, the token keeps
//	|           equal inserts from being made twice, equal rows that get in all the same become one
//	3 look ---- are all there, and no others at their places?
//	|           a token that the server remembers of rows that are gone: inserted again without it
//	|           others: two forks came concurrently. Both are kept, and both are refused
//	4 feed ---- the segments' rows in the feed, stamped; see feed.add
//	|           killed: the records can be read and are in the feed, but the run does not count them yet;
//	|           step 1 finds all rows, and no marker, and goes on here: the feed has the segment twice
//	5 marker -- the rows of the segments
//	|           killed: nothing is missing; step 1 finds it so
//	6 look ---- was anything of it erased meanwhile? Then it is erased again
//	|           killed before: the readers know it by the erasures table, and so does step 1
//	nil
//
// Whatever is in the tables, readers take one row of those with the same seq: of
// equal ones any, of different ones (a fork) the one whose segment has a marker,
// else the one with the smallest leaf: a record that was acknowledged is the one that is read.
//
// Counting is done by markers, whose segments do not overlap unless the log was cut differently; such runs are counted
// by their rows. A run belongs to the tenant and host of its first marker.
type Store struct {
	db         *database
	reader     reader
	summarizer summarizer
	lookup     lookup
	feed       feed
	eraser     eraser
	ingester   ingester
	repairer   repairer
	stretch    uint64 // records that a search begins with
}

// Open connects to the database that dsn names, native (clickhouse://user:password@host:9000/database)
// or HTTP (http://, https://); secure=true, ca, cert and key in its query are for TLS. It
// makes the database if there is none, and brings its schema up to date, unless a newer Custody has
// (TooNewError). Where the schema is as it should be, no more than reading it is needed.
func Open(ctx context.Context, dsn string, o Options) (*Store, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	opts, err := parse(dsn)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if o.Cluster != "" {
		opts.Settings["insert_quorum"] = "auto" // an acknowledged row survives the loss of a replica,
		opts.Settings["insert_quorum_parallel"] = 0
		opts.Settings["select_sequential_consistency"] = 1 // and is seen on each
		opts.Settings["distributed_foreground_insert"] = 1
	}
	db := &database{schema: schema{opts.Auth.Database, o}}
	if db.conn, err = driver.Open(opts); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	m := migrator{db}
	if err := m.run(ctx, opts); err != nil {
		return nil, fmt.Errorf("open store: %w", errors.Join(err, db.conn.Close()))
	}
	return newStore(db), nil
}

func newStore(db *database) *Store {
	read := reader{db}
	look := lookup{db}
	rows := inserter{db}
	sums := summarizer{db, read}
	feed := feed{db, cmp.Or(db.schema.Settle, defaultSettle)}
	erase := eraser{db, read, look, sums}
	in := ingester{look, rows, feed, sums, erase}
	return &Store{
		db: db, reader: read, summarizer: sums, lookup: look, feed: feed, eraser: erase, ingester: in,
		repairer: repairer{db, look, feed, rows, in, erase}, stretch: firstStretch,
	}
}

// Close closes the connections. Calls under way fail.
func (s *Store) Close() error { return s.db.conn.Close() }
