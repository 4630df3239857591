package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/store"
	"github.com/custody-project/custody/audit/store/storetest"
)

// BenchmarkIngest takes in whole segments, and measures in the same run what the
// driver alone needs for the same rows: the same table and indexes, the same
// durability, columns ready to be written, 64 rows a statement, one transaction.
// "ratio" is the share of the bare insert's speed that is left with parsing, checking for
// repeats, manifest, feed and summary.
func BenchmarkIngest(b *testing.B) {
	for _, size := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("segment=%d", size), func(b *testing.B) {
			whole, bare := newStore(b), newStore(b)
			template := storetest.Events(size)
			var took [2]time.Duration
			rows := 0
			for b.Loop() {
				seg := storetest.Segments(fmt.Sprint("r-", rows), storetest.Frames(fmt.Sprint("r-", rows), template), size)[0]
				rows += size
				args, err := bareArgs(seg)
				if err != nil {
					b.Fatal(err)
				}
				begin := time.Now()
				if err := whole.Ingest(b.Context(), seg); err != nil {
					b.Fatal(err)
				}
				took[0] += time.Since(begin)
				begin = time.Now()
				if err := bareInsert(b.Context(), bare.db, args); err != nil {
					b.Fatal(err)
				}
				took[1] += time.Since(begin)
			}
			b.ReportMetric(float64(rows)/took[0].Seconds(), "rows/s")
			b.ReportMetric(float64(rows)/took[1].Seconds(), "bare-rows/s")
			b.ReportMetric(float64(took[1])/float64(took[0]), "ratio")
		})
	}
}

func bareArgs(seg store.Segment) (args []any, err error) {
	for _, f := range seg.Frames {
		h, err := store.HeadOf(seg.Run, f)
		if err != nil {
			return nil, err
		}
		args = rowArgs(args, h, f)
	}
	return args, nil
}

func bareInsert(ctx context.Context, db *sql.DB, args []any) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	stmt, err := tx.PrepareContext(ctx, insertSQL(64))
	if err != nil {
		return err
	}
	for ; len(args) >= 64*columns; args = args[64*columns:] {
		if _, err := stmt.ExecContext(ctx, args[:64*columns]...); err != nil {
			return err
		}
	}
	if len(args) > 0 {
		if _, err := tx.ExecContext(ctx, insertSQL(len(args)/columns), args...); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// BenchmarkDisk tells what an event takes in the file, columns and indexes included.
func BenchmarkDisk(b *testing.B) {
	const rows = 100000
	for b.Loop() {
		path := filepath.Join(b.TempDir(), "store.db")
		s := open1(b, path)
		segs := storetest.Run("r-01k8a2b3c4d5e6f7g8h9jkmnpq", rows, 10000)
		bytes := 0
		for _, seg := range segs {
			for _, f := range seg.Frames {
				bytes += len(f.Body)
			}
		}
		storetest.Ingest(b, s, segs)
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(info.Size())/rows, "B/event")
		b.ReportMetric(float64(bytes)/rows, "body-B/event")
	}
}

func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "store.db")
	storetest.Ingest(b, open1(b, path), storetest.Run("r-1", 100, 100))
	for b.Loop() {
		s, err := Open(path)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Runs(b.Context(), store.Filter{}); err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

func BenchmarkRead(b *testing.B) {
	s := newStore(b)
	storetest.Ingest(b, s, storetest.Run("r-1", 100000, 10000))
	n := 0
	for b.Loop() {
		n += len(storetest.Collect(b, s.Records(b.Context(), store.Query{Run: "r-1"})))
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkQueries asks a store of CUSTODY_BENCH_ROWS records (200,000 if not set)
// in runs of 10,000, spread over a day, what people ask.
func BenchmarkQueries(b *testing.B) {
	rows := 200000
	if text := os.Getenv("CUSTODY_BENCH_ROWS"); text != "" {
		if _, err := fmt.Sscan(text, &rows); err != nil {
			b.Fatal(err)
		}
	}
	s := newStore(b)
	const perRun = 10000
	runs := rows / perRun
	for i := range runs {
		storetest.Ingest(b, s, storetest.Segments(fmt.Sprint("r-", i), storetest.Frames(fmt.Sprint("r-", i), dayOf(i, runs, perRun)), perRun))
	}
	day := storetest.Start().Add(-time.Hour)
	for _, bench := range []struct {
		name string
		rows iter.Seq2[store.Row, error]
	}{
		{"run, page 1", s.Records(b.Context(), store.Query{Run: "r-3", Limit: 500})},
		{"run, page 20", s.Records(b.Context(), store.Query{Run: "r-3", AfterSeq: 9500, Limit: 500})},
		{"hash, all runs", s.Search(b.Context(), store.Search{Hash: fmt.Sprintf("%064x", 77)})},
		{"host, 24 h, 100 newest", s.Search(b.Context(), store.Search{Host: "host7.example", From: day, Limit: 100})},
		{"path, 100 newest", s.Search(b.Context(), store.Search{Path: "/usr/bin/git", Limit: 100})},
		{"last hour, 100 newest", s.Search(b.Context(), store.Search{From: day.Add(24 * time.Hour), Limit: 100})},
	} {
		b.Run(bench.name, func(b *testing.B) {
			n := 0
			for b.Loop() {
				n = len(storetest.Collect(b, bench.rows))
			}
			b.ReportMetric(float64(n), "rows")
			b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N), "ms")
		})
	}
	b.Run("runs, 100 newest", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Runs(b.Context(), store.Filter{Limit: 100}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// dayOf are n events of the i-th of so many runs of a day. Each eighth is a flow
// to one of 50 hosts, and each run has one file that all runs have.
func dayOf(i, runs, n int) []audit.Event {
	events := storetest.Events(n)
	begin := 24 * time.Hour * time.Duration(i) / time.Duration(runs)
	for j := range events {
		e := &events[j]
		e.Time = e.Time.Add(begin)
		switch {
		case j == 77:
			e.Kind, e.Exec, e.Exit, e.Output = audit.KindFile, nil, nil, nil
			e.File = &audit.File{Op: audit.FileWrite, Path: "/w/x", SHA256: fmt.Sprintf("%064x", j)}
		case j%8 == 4:
			e.Kind, e.Exec = audit.KindFlow, nil
			e.Flow = &audit.Flow{State: audit.FlowOpen, Proto: "tcp", DstIP: "198.18.0.7", DstPort: 443, Name: audit.Text(fmt.Sprintf("host%d.example", j/8%50))}
		}
	}
	return events
}
