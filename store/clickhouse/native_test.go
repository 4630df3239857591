package clickhouse

import (
	"context"
	"testing"
	"time"

	driver "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store/clickhouse/clickhousetest"
	"github.com/custody-project/custody/store/storetest"
)

// oldRecords is the table without what a server of 2018 lacks: seconds for time, no codecs,
// no LowCardinality, no retention, no indexes.
const oldRecords = `CREATE TABLE records (
	tenant String, run String, time DateTime, seq UInt64, leaf FixedString(32),
	class Enum8('output' = 1, 'activity' = 2, 'evidence' = 3), ingested DateTime DEFAULT now(), root FixedString(32),
	kind String, observer String, step String, proc String, path String, host String, hash String, secret String, rule String,
	salt FixedString(16), body String
) ENGINE = ReplacingMergeTree PARTITION BY (toDate(ingested), class) ORDER BY (tenant, run, time, seq, leaf)`

// TestNativeProtocol sends batches to a real server over the native protocol and reads back
// exactly what was sent. It covers the connection, the column list, the blocks, the reading of
// bytes, and the end of a connection. It does not cover what that server lacks: the schema's
// types, deduplication, parameters, projections, retention, erasure; TestSuite covers those over HTTP.
func TestNativeProtocol(t *testing.T) {
	o, err := parse(clickhousetest.StartOld(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	clear(o.Settings) // the server does not support current settings
	db, err := driver.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s := newStore(&database{conn: db, schema: schema{database: "default", Options: Options{Settle: time.Second}}})
	if err := s.db.exec(t.Context(), oldRecords); err != nil {
		t.Fatal(err)
	}
	events := storetest.Events(5000)
	for i, text := range storetest.AnyText() { // instead of a line of output
		exec := *events[4].Exec
		exec.Exe = text
		events[2+4*i].Kind, events[2+4*i].Output, events[2+4*i].Exec = audit.KindExec, nil, &exec
	}
	seg := storetest.Segments("r-1", storetest.Frames("r-1", events), 5000)[0]
	in, err := prepare(seg)
	if err != nil {
		t.Fatal(err)
	}
	for _, compression := range []driver.CompressionMethod{driver.CompressionNone, driver.CompressionLZ4} {
		t.Run(compression.String(), func(t *testing.T) {
			o := *o
			o.Compression = &driver.Compression{Method: compression}
			db, err := driver.Open(&o)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			s.db.conn = db
			sendAndRead(t, s, in)
		})
	}
}

func sendAndRead(t *testing.T, s *Store, in *segment) {
	ctx := t.Context()
	if err := s.db.exec(ctx, "TRUNCATE TABLE records"); err != nil {
		t.Fatal(err)
	}
	var b rowBuffer
	for i, f := range in.Frames {
		b.add(in, f, in.heads[i], in.leaves[i])
	}
	batch, err := s.db.conn.PrepareBatch(ctx, "INSERT INTO records ("+recordColumns+")")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.fill(batch); err != nil {
		t.Fatal(err)
	}
	if err := batch.Send(); err != nil {
		t.Fatal(err)
	}
	rows, err := s.db.conn.Query(ctx, "SELECT tenant, run, seq, time, leaf, root, body = '', kind, observer, step, proc, path, host, hash, secret, rule, salt, body FROM records ORDER BY seq")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		got, err := scanRow(rows)
		if err != nil {
			t.Fatal(err)
		}
		want := in.heads[n]
		want.Time = want.Time.Truncate(time.Second)
		if f := got.Frame(); string(f.Body) != string(in.Frames[n].Body) || f.Salt != in.Frames[n].Salt || got.leaf != in.leaves[n] || !got.SameColumns(want) {
			t.Fatalf("record %d came back as %+v", n, got)
		}
	}
	if err := rows.Err(); err != nil || n != len(in.Frames) {
		t.Fatalf("%d rows, want %d: %v", n, len(in.Frames), err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.db.exec(over, "SELECT 1"); err == nil {
		t.Error("a context that is over does not end a query")
	}
}
