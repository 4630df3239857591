package clickhouse

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/clickhouse/clickhousetest"
	"github.com/custody-project/custody/store/storetest"
)

// TestSearchStretches: a search through many short stretches finds the same as one through a single stretch.
func TestSearchStretches(t *testing.T) {
	s := open(t, clickhousetest.Start(t).Fresh(), quick)
	var segs []store.Segment
	for run := range 12 {
		segs = append(segs, day(run, 150)...)
	}
	storetest.Ingest(t, s, segs)
	many := *s
	many.stretch = 20
	if cuts, err := (&searching{reader: many.reader, first: many.stretch, ctx: t.Context(), at: latest}).cuts(); err != nil || len(cuts) < 5 {
		t.Fatalf("%d cuts, %v", len(cuts), err)
	}
	late := &store.Head{Time: storetest.Start().Add(7 * time.Minute)}
	for _, q := range []store.Search{
		{Host: "host42.example.com"}, {Host: "nowhere.example"}, {Kinds: []audit.Kind{audit.KindDNS}, From: storetest.Start()}, {Path: "/workspace/src/pkg1/file601_test.go"},
		{Host: "host42.example.com", Kinds: []audit.Kind{audit.KindDNS, audit.KindFlow}}, {Host: "host42.example.com", Kinds: []audit.Kind{audit.KindExec}},
		{Kinds: []audit.Kind{audit.KindRun}, From: storetest.Start().Add(3 * time.Minute)}, {Kinds: []audit.Kind{audit.KindRun}, From: storetest.Start(), Before: late},
	} {
		for _, q.Limit = range []int{0, 1, 7, 100} {
			want := storetest.Collect(t, s.Search(t.Context(), q))
			got := storetest.Collect(t, many.Search(t.Context(), q))
			if places(got) != places(want) {
				t.Errorf("%+v: in stretches\n%s, in one\n%s", q, places(got), places(want))
			}
		}
	}
}

func places(rows []store.Row) string {
	var all strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&all, "%s/%d ", r.Run, r.Seq)
	}
	return all.String()
}

// TestSearchByKind: a path that every part has, but not in a record of the kind, is pruned, also in records that an older
// version ingested.
func TestSearchByKind(t *testing.T) {
	dsn := clickhousetest.Start(t).Fresh()
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	old := raw(t, dsn)
	if err := (migrator{old.db}).migrateTo(t.Context(), files[:3], 0); err != nil {
		t.Fatal(err)
	}
	storetest.Ingest(t, old, storetest.Run("r-old", 100, 100))
	s := open(t, dsn, quick)
	storetest.Ingest(t, s, storetest.Run("r-new", 100, 100))
	for unfinished := uint64(1); unfinished > 0; {
		err := s.db.conn.QueryRow(t.Context(), "SELECT count() FROM system.mutations WHERE database = currentDatabase() AND NOT is_done").Scan(&unfinished)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	row := storetest.Collect(t, s.Search(t.Context(), store.Search{Kinds: []audit.Kind{audit.KindFile}, From: storetest.Start(), Limit: 1}))[0]
	for _, c := range []struct {
		kind audit.Kind
		none bool
	}{{audit.KindFile, false}, {audit.KindExec, true}} {
		q := store.Search{Path: row.Path, Kinds: []audit.Kind{c.kind}, Limit: 10}
		var granules uint64
		err := s.db.conn.QueryRow(t.Context(), "SELECT sum(marks) FROM (EXPLAIN ESTIMATE SELECT seq FROM records WHERE "+searchWhere(q)+")").Scan(&granules)
		if err != nil || (granules == 0) != c.none {
			t.Errorf("%s in records of kind %s: %d granules are read, %v", row.Path, c.kind, granules, err)
		}
		if found := storetest.Collect(t, s.Search(t.Context(), q)); (len(found) == 0) != c.none {
			t.Errorf("%s in records of kind %s: %d found", row.Path, c.kind, len(found))
		}
	}
}
