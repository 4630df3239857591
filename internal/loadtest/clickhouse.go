package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"time"

	driver "github.com/ClickHouse/clickhouse-go/v2"
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/ship"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/clickhouse"
)

// clickhouseEnd measures the whole way of events into a ClickHouse, with the transport in this
// process, against inserts of the same rows in batches by the driver alone. Then the store is
// searched. The database must be one that no one needs: its tables are emptied.
func (r *report) clickhouseEnd(ctx context.Context, dir string) error {
	if r.dsn == "" {
		return nil
	}
	st, err := clickhouse.Open(ctx, r.dsn, clickhouse.Options{})
	if err != nil {
		return err
	}
	defer st.Close()
	options, err := driver.ParseDSN(r.dsn)
	if err != nil {
		return err
	}
	conn, err := driver.Open(options)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, table := range []string{"records", "segments"} {
		if err := conn.Exec(ctx, "TRUNCATE TABLE "+table); err != nil {
			return err
		}
	}
	took, err := carry(ctx, filepath.Join(dir, "r-loadtest-"+time.Now().Format("150405")), st, r.events)
	if err != nil {
		return err
	}
	bare, err := bareClickHouse(ctx, conn)
	if err != nil {
		return err
	}
	r.add("event to ClickHouse, the whole way", perSecond(r.events, took, "events"),
		"the same rows by batches of the driver: "+perSecond(r.events, bare, "rows"), ratio(took, bare))
	if err := r.ask(ctx, "ClickHouse", st); err != nil {
		return err
	}
	return r.clickhouseDisk(ctx, conn)
}

// clickhouseDisk asks the server how much all records take, when it has merged them.
func (r *report) clickhouseDisk(ctx context.Context, conn driver.Conn) error {
	for _, table := range []string{"records", "segments"} {
		if err := conn.Exec(ctx, "OPTIMIZE TABLE "+table+" FINAL"); err != nil {
			return err
		}
	}
	var rows, bytes uint64
	err := conn.QueryRow(ctx, `SELECT sumIf(rows, table = 'records'), sum(bytes_on_disk) FROM system.parts
		WHERE active AND database = currentDatabase() AND table IN ('records', 'segments')`).Scan(&rows, &bytes)
	if err != nil || rows == 0 {
		return errors.Join(err, fmt.Errorf("%d rows are in the server's parts", rows))
	}
	r.add("ClickHouse, bytes an event", fmt.Sprint(bytes/rows), count(int(rows))+" rows", "")
	return nil
}

// carry records events and returns how long it took until st had them all.
func carry(ctx context.Context, dir string, st ship.Store, events int) (time.Duration, error) {
	red, err := newRedactor()
	if err != nil {
		return 0, err
	}
	sealer, _, err := newSealer()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	l, err := wal.Create(dir, wal.Options{Run: filepath.Base(dir), Sealer: sealer})
	if err != nil {
		return 0, err
	}
	t := ship.Start(ctx, st)
	defer t.Close()
	closed, carried := make(chan struct{}), make(chan error, 1)
	go func() { carried <- publish(ctx, dir, t, closed) }()
	err = post(ctx, audit.NewRecorder(l, red), events)
	err = errors.Join(err, l.Close(ctx, wal.Sealed))
	close(closed)
	err = errors.Join(err, <-carried)
	if err == nil {
		err = t.Drain(ctx)
	}
	return time.Since(began), err
}

// publish hands over segments as they are sealed, until closed is, and all that are there then.
func publish(ctx context.Context, dir string, t *ship.Transport, closed <-chan struct{}) error {
	next := 0
	for last := false; ; {
		manifests, err := filepath.Glob(filepath.Join(dir, "*"+wal.ManifestSuffix))
		if err != nil {
			return err
		}
		for ; next < len(manifests); next++ {
			seg, err := readSegment(dir, manifests[next])
			if err != nil {
				return err
			}
			if err := t.Publish(ctx, seg); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
		select {
		case <-closed:
			last = true
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func readSegment(dir, manifest string) (store.Segment, error) {
	signed, err := os.ReadFile(manifest)
	if err != nil {
		return store.Segment{}, err
	}
	var unverified *note.UnverifiedNoteError
	if _, err := note.Open(signed, note.VerifierList()); !errors.As(err, &unverified) {
		return store.Segment{}, err
	}
	m, err := statement.ParseManifest(unverified.Note.Text)
	if err != nil {
		return store.Segment{}, err
	}
	seg := store.Segment{Host: "custody-loadtest", Run: m.Run, Index: m.Segment, First: m.First, Last: m.Last, Root: m.Root, Manifest: signed}
	if m.Count == 0 {
		return seg, nil
	}
	for f, err := range wal.ReadSegment(filepath.Join(dir, wal.FileName(m.First, wal.SegmentSuffix))) {
		if err != nil {
			return store.Segment{}, err
		}
		seg.Frames = append(seg.Frames, store.Frame{Seq: f.Seq, Salt: f.Salt, Body: f.Bytes})
	}
	return seg, nil
}

// bareBatchClickHouse is how many rows go into a batch of the driver.
const bareBatchClickHouse = 50_000

// bareClickHouse inserts what is in the table of records into one of the same make.
func bareClickHouse(ctx context.Context, conn driver.Conn) (time.Duration, error) {
	for _, stated := range []string{"DROP TABLE IF EXISTS bare", "CREATE TABLE bare AS records"} {
		if err := conn.Exec(ctx, stated); err != nil {
			return 0, err
		}
	}
	defer conn.Exec(context.WithoutCancel(ctx), "DROP TABLE bare")
	rows, err := readRows(ctx, conn)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	for len(rows) > 0 {
		batch, err := conn.PrepareBatch(ctx, "INSERT INTO bare")
		if err != nil {
			return 0, err
		}
		n := min(len(rows), bareBatchClickHouse)
		for _, row := range rows[:n] {
			if err := batch.Append(row...); err != nil {
				return 0, err
			}
		}
		if err := batch.Send(); err != nil {
			return 0, err
		}
		rows = rows[n:]
	}
	return time.Since(began), nil
}

func readRows(ctx context.Context, conn driver.Conn) (all [][]any, err error) {
	rows, err := conn.Query(ctx, "SELECT * FROM records")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	types := rows.ColumnTypes()
	for rows.Next() {
		at, row := make([]any, len(types)), make([]any, len(types))
		for i, t := range types {
			at[i] = reflect.New(t.ScanType()).Interface()
		}
		if err := rows.Scan(at...); err != nil {
			return nil, err
		}
		for i := range at {
			row[i] = reflect.ValueOf(at[i]).Elem().Interface()
		}
		all = append(all, row)
	}
	return all, rows.Err()
}
