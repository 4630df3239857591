package clickhouse

import (
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/clickhouse/clickhousetest"
	"github.com/custody-project/custody/store/storetest"
)

// TestSchema concurrently opens new databases, old ones of every version, and one of a later version.
func TestSchema(t *testing.T) {
	server := clickhousetest.Start(t)
	t.Run("concurrently", func(t *testing.T) {
		dsn := server.Fresh()
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				s, err := Open(t.Context(), dsn, quick)
				if err != nil {
					t.Errorf("opener %d: %v", i, err)
					return
				}
				defer s.Close()
				if err := s.Ingest(t.Context(), storetest.Run(fmt.Sprint("r-", i), 20, 20)...); err != nil {
					t.Errorf("ingest %d: %v", i, err)
				}
			})
		}
		all.Wait()
		if runs, err := open(t, dsn, quick).Runs(t.Context(), store.Filter{}); err != nil || len(runs) != 6 {
			t.Errorf("%d runs, %v", len(runs), err)
		}
	})
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for version := 1; version < len(files); version++ {
		t.Run(fmt.Sprint("from ", version), func(t *testing.T) { testOldSchema(t, server.Fresh(), files[:version]) })
	}
	t.Run("cut off", func(t *testing.T) { testCutOff(t, server.Fresh(), files) })
	t.Run("newer", func(t *testing.T) {
		dsn := server.Fresh()
		if err := open(t, dsn, quick).db.exec(t.Context(), "INSERT INTO schema_versions (version) VALUES (99)"); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), dsn, quick); err == nil || !strings.Contains(err.Error(), "schema 99") {
			t.Errorf("got %v, want a TooNewError", err)
		}
	})
}

// raw is a connection to a new database without the schema.
func raw(t *testing.T, dsn string) *Store {
	t.Helper()
	s := open(t, dsn, quick)
	for _, table := range []string{"records", "segments", "feed", "erasures", "schema_versions"} {
		if err := s.db.exec(t.Context(), "DROP TABLE "+table+" SYNC"); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// testOldSchema fills a database with an older schema and opens it.
func testOldSchema(t *testing.T, dsn string, files []string) {
	old := raw(t, dsn)
	if err := (migrator{old.db}).migrateTo(t.Context(), files, 0); err != nil {
		t.Fatal(err)
	}
	var b rowBuffer
	segs := storetest.Run("r-old", 100, 100)
	in, err := prepare(segs[0])
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range in.Frames {
		b.add(in, f, in.heads[i], in.leaves[i])
	}
	if err := old.ingester.insert.records(t.Context(), &b, b.token()); err != nil {
		t.Fatal(err)
	}
	s := open(t, dsn, quick)
	if have, err := (migrator{s.db}).version(t.Context()); err != nil || have <= len(files) {
		t.Fatalf("version %d after the migration: %v", have, err)
	}
	storetest.Ingest(t, s, segs)
	wantOnce(t, s, "r-old", segs)
	if err := s.Erase(t.Context(), "", "r-old", 7); err != nil {
		t.Error(err)
	}
}

// testCutOff opens a database whose migration was interrupted between any two statements.
func testCutOff(t *testing.T, dsn string, files []string) {
	s := raw(t, dsn)
	if err := (migrator{s.db}).migrateTo(t.Context(), nil, 0); err != nil { // the table of versions only
		t.Fatal(err)
	}
	for _, file := range files {
		statements, err := s.db.schema.statements(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, stmt := range statements[:len(statements)/2+1] {
			if err := s.db.exec(t.Context(), stmt); err != nil {
				t.Fatal(err)
			}
		}
	}
	segs := storetest.Run("r-1", 30, 30)
	s = open(t, dsn, quick)
	storetest.Ingest(t, s, segs)
	wantOnce(t, s, "r-1", segs)
}

// TestRetention: expired parts of a class are removed, those of others stay, and a
// number of days beyond the server's range deletes nothing.
func TestRetention(t *testing.T) {
	server := clickhousetest.Start(t)
	dsn := server.Fresh()
	const day = 24 * time.Hour
	s := open(t, dsn, Options{Settle: time.Second, Retain: map[Class]time.Duration{Output: 2 * day, Activity: 100000 * day}})
	segs := storetest.Run("r-1", 100, 100)
	storetest.Ingest(t, s, segs)
	if err := s.db.exec(t.Context(), "OPTIMIZE TABLE records FINAL"); err != nil {
		t.Fatal(err)
	}
	storetest.WantRecords(t, s, "r-1", segs)
	// Rows that were ingested three days ago.
	var b rowBuffer
	in, err := prepare(storetest.Run("r-2", 100, 100)[0])
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range in.Frames {
		b.add(in, f, in.heads[i], in.leaves[i])
	}
	if err := s.ingester.insert.records(t.Context(), &b, ""); err != nil {
		t.Fatal(err)
	}
	if err := s.db.exec(t.Context(), "INSERT INTO records ("+recordColumns+", ingested) SELECT "+
		strings.Replace(recordColumns, "run", "'r-3'", 1)+", now('UTC') - toIntervalDay(3) FROM records WHERE run = 'r-2'"); err != nil {
		t.Fatal(err)
	}
	if err := s.db.exec(t.Context(), "OPTIMIZE TABLE records FINAL"); err != nil {
		t.Fatal(err)
	}
	count := func(where string) (n uint64) {
		t.Helper()
		if err := s.db.conn.QueryRow(t.Context(), "SELECT count() FROM records WHERE "+where).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if out, rest := count("run = 'r-3' AND class = 'output'"), count("run = 'r-3'"); out != 0 || rest != 76 {
		t.Errorf("three days later %d records of output and %d in all are left, want 0 and 76", out, rest)
	}
	if n := count("run = 'r-2'"); n != 100 {
		t.Errorf("of those of today %d are left, want 100", n)
	}
	// Opening without a setting, or with the same one, changes nothing; with another it does.
	open(t, dsn, quick)
	var ttl string
	longer := Options{Settle: time.Second, Retain: map[Class]time.Duration{Output: 9 * day}}
	if err := open(t, dsn, longer).db.conn.QueryRow(t.Context(), "SELECT comment FROM system.tables WHERE database = currentDatabase() AND name = 'records'").Scan(&ttl); err != nil || ttl != "retain: output=9d" {
		t.Errorf("retention is %q, %v", ttl, err)
	}
}

// TestVariants parses the DDL of the variants that one server cannot execute with the engine, which
// proceeds until it needs its Keeper, or the cluster.
func TestVariants(t *testing.T) {
	s := raw(t, clickhousetest.Start(t).Fresh())
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{{Cluster: "fleet"}, {Cluster: "fleet's", Sharded: true, KeeperPath: "/custody/{shard}/"}} {
		variant := schema{"custody", o}
		for _, file := range files {
			statements, err := variant.statements(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, stmt := range statements {
				var parsed string
				if err := s.db.conn.QueryRow(t.Context(), "SELECT formatQuery("+quote(stmt)+")").Scan(&parsed); err != nil {
					t.Errorf("%v\n%s", err, stmt)
				}
				if !strings.Contains(stmt, " ON CLUSTER ") {
					t.Errorf("not for the cluster: %s", stmt)
				}
				if o.Sharded && strings.HasPrefix(stmt, "CREATE") && !strings.Contains(stmt, "_local") {
					t.Errorf("neither a local table nor one over it: %s", stmt)
				}
				alone := strings.Replace(stmt, variant.on(), "", 1)
				if !strings.Contains(alone, "ENGINE = Replicated") {
					continue
				}
				if err := s.db.exec(t.Context(), alone); !isCode(err, 225) && !isCode(err, 139) { // no Keeper, no macros
					t.Errorf("without the cluster: %v\n%s", err, alone)
				}
			}
		}
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{Retain: map[Class]time.Duration{"logs": 24 * time.Hour}}, {Retain: map[Class]time.Duration{Output: time.Hour}},
		{Retain: map[Class]time.Duration{Output: 36 * time.Hour}}, {Sharded: true}, {Settle: -1},
	} {
		if o.check() == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	for _, dsn := range []string{"", "clickhouse://", "http://h/db?ca=/nowhere", "clickhouse://h:9000/db?secure=true&ca=/nowhere", "clickhouse://u:geheim@h:bad port/db"} {
		if _, err := parse(dsn, nil); err == nil {
			t.Errorf("%q is accepted", dsn)
		} else if strings.Contains(err.Error(), "geheim") {
			t.Errorf("the error reveals the password: %v", err)
		}
	}
}

func TestQuote(t *testing.T) {
	s := open(t, clickhousetest.Start(t).Fresh(), quick)
	for _, text := range []string{"", "plain", `it's`, `a\`, `\'; DROP TABLE records; --`, "{x:String}", "?", "$1", "@a", "line\nend\ttab\r", "\x00\x01\xff\xfe", "ü☃", "`"} {
		var got string
		if err := s.db.conn.QueryRow(t.Context(), "SELECT "+quote(text)).Scan(&got); err != nil || got != text {
			t.Errorf("%q came back as %q, %v", text, got, err)
		}
	}
}
