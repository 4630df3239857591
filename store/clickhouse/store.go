// Package clickhouse is the store of a fleet: a ClickHouse database into which several processes ingest many hosts'
// records concurrently.
//
// Tables: records (a row for each record), segments (a row for each segment: its signed
// manifest, and its contribution to the run's summary), feed and erasures. ClickHouse has
// neither unique keys nor transactions over tables, so that exactly one row for
// (run, seq) depends on the order of operations; see Store.
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
// Ingest has these steps. If it is killed at any of them, the segments are not acknowledged, and the process that ingests
// them next begins at the first step:
//
//	1 look ---- reads rows, manifests and erasures of these runs; conflicts end here
//	|           killed: nothing is stored
//	2 rows ---- inserts the missing ones together, with a token made of their leaves
//	|           killed during the insert: the rows exist completely or by partition (day and
//	|           class), or appear later; step 1 finds existing rows, the token prevents
//	|           that equal inserts are repeated, and duplicate rows are merged into one
//	3 look ---- checks that all rows exist, and no others with their seqs
//	|           if the server remembers a token but the rows are gone: inserts them without the token
//	|           if there are others: two forks were ingested concurrently; both are kept and refused
//	4 feed ---- adds the segments' rows to the feed, stamped; see feed.add
//	|           killed: the records can be read and are in the feed, but the run does not count them yet;
//	|           step 1 finds all rows, and no marker, and continues here: the feed has the segment twice
//	5 marker -- inserts the rows of the segments
//	|           killed: nothing is missing, and step 1 finds that
//	6 look ---- erases again what was erased meanwhile
//	|           killed before: readers and step 1 find the erasure in the table erasures
//	nil
//
// Of rows with the same seq, readers use one: of
// equal ones any, of different ones (a fork) the one whose segment has a marker,
// or else the one with the smallest leaf: readers always get an acknowledged record.
//
// Markers contain counts. Their segments do not overlap unless the log was split differently; then the rows are
// counted. A run belongs to the tenant and host of its first marker.
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
	opts, err := parse(dsn, o.Server)
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
