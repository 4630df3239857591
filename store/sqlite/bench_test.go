package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// BenchmarkIngest ingests whole segments, and in the same run measures the
// driver alone with the same rows: the same table and indexes, the same
// durability, prepared columns, 64 rows a statement, one transaction.
// "ratio" is the rate of Ingest divided by that of the bare insert: the rest is the cost of parsing, checking for
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

// BenchmarkDisk reports the size of an event in the file, including columns and indexes.
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
		s, err := Open(b.Context(), path)
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

// BenchmarkLarge queries a store of $CUSTODY_BENCH_ROWS records like users would. If
// $CUSTODY_BENCH_SQLITE names a file, it keeps the store there and fills it once.
func BenchmarkLarge(b *testing.B) {
	path := os.Getenv("CUSTODY_BENCH_SQLITE")
	if path == "" {
		path = filepath.Join(b.TempDir(), "store.db")
	}
	s := open1(b, path)
	l := storetest.LargeOf(b)
	l.Fill(b, s)
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%d bytes a record", info.Size()/int64(l.Records))
	l.Benchmark(b, s)
}
