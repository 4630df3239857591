package clickhouse

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/store/clickhouse/clickhousetest"
	"github.com/custody-project/custody/store/storetest"
)

// TestErasedOnDisk: when Erase has returned, the contents of a record are in no active part, in no column and no copy;
// and in no file after the server has removed the old parts.
func TestErasedOnDisk(t *testing.T) {
	t.Parallel() // it waits for the server's cleaner
	server := clickhousetest.Start(t)
	s := open(t, server.Fresh(), quick)
	ctx := t.Context()
	segs := storetest.Run("r-1", 40, 40)
	storetest.Ingest(t, s, segs)
	in, err := prepare(segs[0])
	if err != nil {
		t.Fatal(err)
	}
	var b rowBuffer // copies that are not merged yet
	for i, f := range in.Frames {
		b.add(in, f, in.heads[i], in.leaves[i])
	}
	if err := s.ingester.insert.records(ctx, &b, ""); err != nil {
		t.Fatal(err)
	}
	if err := s.db.exec(ctx, "ALTER TABLE records MODIFY SETTING old_parts_lifetime = 1"); err != nil {
		t.Fatal(err)
	}
	const seq = 6
	if err := s.EraseAll(ctx, "", "r-1", seq, seq+3, seq); err != nil {
		t.Fatal(err)
	}
	var full, all uint64
	query := "SELECT countIf(body != '' OR path != '' OR proc != '' OR hash != '' OR salt != toFixedString('', 16)), count() FROM records WHERE " +
		of(runKey{"", "r-1"}, []uint64{seq, seq + 3})
	if err := s.db.conn.QueryRow(ctx, query).Scan(&full, &all); err != nil || full != 0 || all < 2 {
		t.Errorf("of %d rows %d still say something: %v", all, full, err)
	}
	parts := func(condition string) (paths []string) {
		t.Helper()
		rows, err := s.db.conn.Query(ctx, "SELECT path FROM system.parts WHERE database = currentDatabase() AND table = 'records' AND "+condition)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var path string
			if err := rows.Scan(&path); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, path)
		}
		return paths
	}
	// Only the directories of active parts are left in the end.
	var inUse, dirs []string
	for begin := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		inUse = parts("active")
		if len(inUse) == 0 {
			t.Fatal("there are no parts")
		}
		if dirs, err = filepath.Glob(filepath.Join(filepath.Dir(strings.TrimSuffix(inUse[0], "/")), "*_*_*")); err != nil {
			t.Fatal(err)
		}
		if len(parts("NOT active")) == 0 && len(dirs) == len(inUse) {
			return
		}
		if time.Since(begin) > 2*time.Minute {
			t.Fatalf("the server keeps old parts:\n%q are there,\n%q in use", dirs, inUse)
		}
	}
}

// TestDocumentedStatements parses the statements of docs/clickhouse.md with the engine.
func TestDocumentedStatements(t *testing.T) {
	text, err := os.ReadFile("../../docs/clickhouse.md")
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, clickhousetest.Start(t).Fresh(), quick)
	var code strings.Builder
	for _, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "    ") {
			fmt.Fprintln(&code, line)
		}
	}
	statements := strings.Split(code.String(), ";\n")
	if len(statements) < 15 {
		t.Fatalf("only %d statements are in the document", len(statements))
	}
	for _, stmt := range statements {
		var parsed string
		if stmt = strings.TrimSpace(stmt); stmt == "" {
			continue
		}
		if err := s.db.conn.QueryRow(t.Context(), "SELECT formatQuery("+quote(stmt)+")").Scan(&parsed); err != nil {
			t.Errorf("%v\n%s", err, stmt)
		}
	}
}
