package clickhouse

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/clickhouse/clickhousetest"
	"github.com/custody-project/custody/store/storetest"
)

// day is a run of n records in the mix that agents make: a third files, a quarter processes, the
// rest output, names, connections and requests. Runs differ, and so do their paths, hosts and hashes.
func day(run int, n int) []store.Segment {
	id := fmt.Sprintf("r-01k%023d", run)
	events := storetest.Events(n)
	at := storetest.Start().Add(time.Duration(run) * time.Minute)
	for i := range events {
		e := &events[i]
		e.Time = at.Add(time.Duration(i) * 3 * time.Millisecond)
		if i < 2 || i >= n-2 {
			continue
		}
		host := audit.Text(fmt.Sprintf("host%d.example.com", (run*7+i)%300))
		switch i % 12 {
		case 1, 5, 9:
			sum := sha256.Sum256([]byte(fmt.Sprint(run%50, i)))
			e.File.Path, e.File.SHA256 = audit.Text(fmt.Sprintf("/workspace/src/pkg%d/file%d_test.go", i%40, run%50*n+i)), fmt.Sprintf("%x", sum)
		case 2:
			e.Kind, e.Output, e.Observer = audit.KindDNS, nil, audit.Host
			e.DNS = &audit.DNS{Name: host, Type: "A", Proto: "udp", RCode: "NOERROR", Answers: []string{"198.18.0." + strconv.Itoa(i%250)}, Verdict: audit.Allow, Rule: "*.example.com tcp/443", Synthetic: true, LatencyNS: int64(i) * 1000}
		case 6:
			e.Kind, e.Output, e.Observer = audit.KindFlow, nil, audit.Host
			e.Flow = &audit.Flow{ID: fmt.Sprint("f-", i), State: audit.FlowOpen, Proto: "tcp", SrcIP: "10.0.2.15", SrcPort: 30000 + i%30000, DstIP: "198.18.0.7", DstPort: 443, Name: host, Verdict: audit.Allow, Rule: "*.example.com tcp/443", DNSSeq: uint64(i - 4)}
		case 10:
			e.Output.Text = audit.Text(fmt.Sprintf("ok  \tgithub.com/example/project/pkg%d\t%d.%03ds\n", i%40, i%7, i%1000))
		}
	}
	frames := storetest.Frames(id, events)
	for i := range frames { // salts are random
		sum := sha256.Sum256(frames[i].Body)
		copy(frames[i].Salt[:], sum[:])
	}
	return storetest.Segments(id, frames, 1000)
}

// BenchmarkIngest compares, in one run, Ingest of segments with a bare batch insert of the same rows
// into a table of the same schema: it shows the cost of lookups, hashing and markers.
func BenchmarkIngest(b *testing.B) {
	server := clickhousetest.Start(b)
	for _, rows := range []int{10000, 50000} {
		b.Run(fmt.Sprint("rows=", rows), func(b *testing.B) { benchIngest(b, server, rows) })
	}
}

func benchIngest(b *testing.B, server *clickhousetest.Server, rows int) {
	s, bare := open(b, server.Fresh(), Options{Settle: time.Minute}), open(b, server.Fresh(), Options{Settle: time.Minute})
	var ours, theirs time.Duration
	run := 0
	for b.Loop() {
		b.StopTimer()
		run++
		segs := day(run, rows)
		var buffer rowBuffer
		buffer.grow(rows)
		for _, seg := range segs {
			in, err := prepare(seg)
			if err != nil {
				b.Fatal(err)
			}
			for i, f := range in.Frames {
				buffer.add(in, f, in.heads[i], in.leaves[i])
			}
		}
		begin := time.Now()
		if err := bare.ingester.insert.records(b.Context(), &buffer, ""); err != nil {
			b.Fatal(err)
		}
		theirs += time.Since(begin)
		b.StartTimer()
		begin = time.Now()
		if err := s.Ingest(b.Context(), segs...); err != nil {
			b.Fatal(err)
		}
		ours += time.Since(begin)
	}
	n := float64(rows * run)
	b.ReportMetric(n/ours.Seconds(), "rows/s")
	b.ReportMetric(n/theirs.Seconds(), "bare-rows/s")
	b.ReportMetric(theirs.Seconds()/ours.Seconds(), "of-bare")
}

// BenchmarkDay queries a store of a million records, or of $CUSTODY_BENCH_ROWS, like users would,
// and reports the size of a record on disk.
func BenchmarkDay(b *testing.B) {
	rows := 1000000
	if text := os.Getenv("CUSTODY_BENCH_ROWS"); text != "" {
		var err error
		if rows, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	s := open(b, clickhousetest.Start(b).Fresh(), Options{Settle: time.Minute})
	for run := range rows / 10000 {
		if err := s.Ingest(b.Context(), day(run, 10000)...); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.db.exec(b.Context(), "OPTIMIZE TABLE records FINAL"); err != nil {
		b.Fatal(err)
	}
	var disk, body, raw, proofs, projection uint64
	err := s.db.conn.QueryRow(b.Context(), `SELECT sum(bytes_on_disk), (SELECT sum(bytes_on_disk) FROM system.projection_parts WHERE active AND database = currentDatabase())
		FROM system.parts WHERE active AND database = currentDatabase() AND table = 'records'`).Scan(&disk, &projection)
	if err != nil {
		b.Fatal(err)
	}
	err = s.db.conn.QueryRow(b.Context(), `SELECT sumIf(data_compressed_bytes, name = 'body'), sumIf(data_uncompressed_bytes, name = 'body'), sumIf(data_compressed_bytes, name IN ('salt', 'leaf'))
		FROM system.columns WHERE database = currentDatabase() AND table = 'records'`).Scan(&body, &raw, &proofs)
	if err != nil {
		b.Fatal(err)
	}
	middle := rows / 10000 / 2
	id := fmt.Sprintf("r-01k%023d", middle)
	sum := sha256.Sum256([]byte(fmt.Sprint(middle%50, 5)))
	now := storetest.Start().Add(time.Duration(rows/10000) * time.Minute)
	for _, q := range []struct {
		name string
		ask  func() int
	}{
		{"this run, page 1", func() int {
			return len(storetest.Collect(b, s.Records(b.Context(), store.Query{Run: id, Limit: 100})))
		}},
		{"this run, page 50", func() int {
			return len(storetest.Collect(b, s.Records(b.Context(), store.Query{Run: id, AfterSeq: 5000, Limit: 100})))
		}},
		{"this hash, all runs", func() int {
			return len(storetest.Collect(b, s.Search(b.Context(), store.Search{Hash: fmt.Sprintf("%x", sum), Limit: 100})))
		}},
		{"this host, last 24 h", func() int {
			return len(storetest.Collect(b, s.Search(b.Context(), store.Search{Host: "host42.example.com", From: now.Add(-24 * time.Hour), Limit: 100})))
		}},
		{"runs, newest 50", func() int {
			runs, err := s.Runs(b.Context(), store.Filter{Limit: 50})
			if err != nil {
				b.Fatal(err)
			}
			return len(runs)
		}},
	} {
		b.Run(q.name, func(b *testing.B) {
			found := 0
			for b.Loop() {
				found = q.ask()
			}
			b.ReportMetric(float64(found), "found")
		})
	}
	b.Run("disk", func(b *testing.B) {
		for b.Loop() {
		}
		b.ReportMetric(float64(disk)/float64(rows), "B/record")
		b.ReportMetric(float64(body)/float64(rows), "B/body")
		b.ReportMetric(float64(raw)/float64(rows), "B/body-raw")
		b.ReportMetric(float64(proofs)/float64(rows), "B/salt+leaf")
		b.ReportMetric(float64(projection)/float64(rows), "B/projection")
	})
}

// BenchmarkLarge queries a store of $CUSTODY_BENCH_ROWS records like users would. It uses the database
// that $CUSTODY_BENCH_CLICKHOUSE names, which is filled once, or else a new one.
func BenchmarkLarge(b *testing.B) {
	dsn := os.Getenv("CUSTODY_BENCH_CLICKHOUSE")
	if dsn == "" {
		dsn = clickhousetest.Start(b).Fresh()
	}
	s := open(b, dsn, Options{Settle: time.Minute})
	l := storetest.LargeOf(b)
	l.Fill(b, s)
	l.Benchmark(b, s)
}
