package storetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

var ingestTests = []namedTest{
	{"whole run", testWholeRun},
	{"out of order and repeated", testRepeats},
	{"many in one call", testBatch},
	{"from many goroutines", testConcurrent},
	{"any bytes", testBytes},
	{"huge records", testHuge},
	{"ten thousand", testTenThousand},
	{"times", testTimes},
	{"closing manifest first", testClosingFirst},
}

// same ingests the segments into an oracle too and compares.
func same(t *testing.T, s store.Store, segs ...store.Segment) *Oracle {
	t.Helper()
	o := &Oracle{}
	Ingest(t, o, segs)
	wantLike(t, s, o)
	return o
}

func testWholeRun(t *testing.T, s store.Store) {
	segs := Run("r-1", 1000, 300)
	Ingest(t, s, segs)
	WantRecords(t, s, "r-1", segs)
	same(t, s, segs...)
	r, err := s.Run(t.Context(), "", "r-1")
	if err != nil || r.Status != store.Sealed || r.ExitCode == nil || *r.ExitCode != 7 || r.Events != 1000 || r.LastSeq != 1000 ||
		r.Project != "shop" || r.Tier != "qemu-tcg" || r.Template != "base" || r.DurationNS != 999e6 || !r.Start.Equal(start) {
		t.Errorf("summary is %+v, %v", r, err)
	}
}

// recut returns the frames of a run in other segments without manifests, like a log
// that is read again.
func recut(run string, n, size int) []store.Segment {
	segs := Run(run, n, size)
	for i := range segs {
		segs[i].Manifest = nil
	}
	return segs
}

func testRepeats(t *testing.T, s store.Store) {
	segs := Run("r-1", 500, 50)
	backwards := slices.Clone(segs)
	slices.Reverse(backwards)
	Ingest(t, s, backwards)
	Ingest(t, s, segs)
	Ingest(t, s, recut("r-1", 500, 85))
	WantRecords(t, s, "r-1", segs)
	same(t, s, segs...)
}

func testBatch(t *testing.T, s store.Store) {
	segs := slices.Concat(Run("r-1", 200, 30), Run("r-2", 100, 7), Run("r-3", 40, 100))
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(segs), func(i, j int) { segs[i], segs[j] = segs[j], segs[i] })
	twice := slices.Concat(segs[:20], segs[10:], segs[:5], recut("r-1", 200, 33))
	for range 2 {
		if err := s.Ingest(t.Context(), twice...); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Ingest(t.Context()); err != nil {
		t.Errorf("nothing at all: %v", err)
	}
	same(t, s, segs...)
}

func testConcurrent(t *testing.T, s store.Store) {
	segs := slices.Concat(Run("r-1", 300, 25), Run("r-2", 60, 11))
	var writers sync.WaitGroup
	for i := range 6 {
		random := rand.New(rand.NewPCG(uint64(i), 5))
		writers.Go(func() {
			mine := slices.Clone(segs)
			random.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			for len(mine) > 0 {
				n := min(1+random.IntN(4), len(mine))
				if err := s.Ingest(t.Context(), mine[:n]...); err != nil {
					t.Errorf("writer %d: %v", i, err)
				}
				mine = mine[n:]
			}
		})
	}
	writers.Wait()
	same(t, s, segs...)
}

// AnyText returns texts that databases often corrupt.
func AnyText() []audit.Text {
	return []audit.Text{"", "'; DROP TABLE records; --", "tab\tnewline\n\r", "nul\x00inside", "\xff\xfe\x80 not UTF-8", `{"json":1}`,
		"quote\" back\\slash", "€ \U0001F512 \u2028", "%_*?", "\\x00", "NULL", "trailing ", "\x1b[31m"}
}

func testBytes(t *testing.T, s store.Store) {
	var events []audit.Event
	for i, text := range AnyText() {
		at := start.Add(time.Duration(i) * time.Second)
		events = append(events,
			audit.Event{Time: at, Observer: audit.Guest, Kind: audit.KindFile, Step: string(text), File: &audit.File{Proc: string(text), Op: audit.FileRead, Path: text}},
			audit.Event{Time: at, Observer: audit.Guest, Kind: audit.KindOutput, Output: &audit.Output{Stream: "tty", Text: text}})
	}
	frames := Frames("r-1", events)
	for i := range frames {
		for j := range frames[i].Salt {
			frames[i].Salt[j] = byte(i * 37 * j) // all bytes, zero bytes at the end too
		}
	}
	// JSON may contain bytes that are not UTF-8, space, and unknown keys.
	odd := []byte(" {\"run\":\"r-1\" ,\n\"seq\":99,\"time\":\"2026-11-03T12:00:00+01:00\",\"kind\":\"new kind\",\"x\":\"\xff\xfe\"}\t")
	frames = append(frames, store.Frame{Seq: 99, Body: odd})
	segs := Segments("r-1", frames, 8)
	Ingest(t, s, segs)
	o := same(t, s, segs...)
	for _, text := range AnyText() {
		if text != "" {
			wantFound(t, s, o, store.Search{Path: string(text)})
		}
	}
}

func testHuge(t *testing.T, s store.Store) {
	frames := Frames("r-1", Events(4))
	frames[2] = sized("r-1", 3, store.MaxBody)
	segs := Segments("r-1", frames, 10)
	Ingest(t, s, segs)
	same(t, s, segs...)
	long := audit.Text(bytes.Repeat([]byte("/directory"), 1600))
	deep := Segments("r-2", Frames("r-2", []audit.Event{{Time: start, Observer: audit.Guest, Kind: audit.KindFile,
		File: &audit.File{Op: audit.FileDelete, Path: long}}}), 1)
	Ingest(t, s, deep)
	wantFound(t, s, same(t, s, slices.Concat(segs, deep)...), store.Search{Path: string(long)})
}

// sized is a record of exactly n bytes.
func sized(run string, seq uint64, n int) store.Frame {
	e := audit.Event{Time: start, Observer: audit.Guest, Kind: audit.KindOutput, Output: &audit.Output{Stream: "stdout"}}
	room := n - len(Frame(run, seq, e).Body)
	e.Output.Text = audit.Text(bytes.Repeat([]byte("x"), room))
	return Frame(run, seq, e)
}

func testTenThousand(t *testing.T, s store.Store) {
	segs := Run("r-1", 10000, 4000)
	if err := s.Ingest(t.Context(), segs...); err != nil {
		t.Fatal(err)
	}
	Ingest(t, s, segs[1:2])
	WantRecords(t, s, "r-1", segs)
	r, err := s.Run(t.Context(), "", "r-1")
	if err != nil || r.Events != 10000 || r.LastSeq != 10000 || r.Status != store.Sealed {
		t.Errorf("summary is %+v, %v", r, err)
	}
}

func testTimes(t *testing.T, s store.Store) {
	times := []string{"1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000001Z", "2026-11-03T12:00:00.123456789Z", "2026-11-03T12:00:00.12345679Z",
		"2026-11-03T14:00:00.5+02:00", "2262-01-01T00:30:00+01:00", "2261-12-31T23:59:59.999999999Z", "2028-02-29T23:59:59.000000999Z"}
	var frames []store.Frame
	for i, at := range times {
		body := fmt.Appendf(nil, `{"v":1,"run":"r-1","seq":%d,"time":%q,"observer":"host","kind":"vm","vm":{"op":"boot"}}`, i+1, at)
		frames = append(frames, store.Frame{Seq: uint64(i + 1), Body: body})
	}
	segs := Segments("r-1", frames, 3)
	Ingest(t, s, segs)
	o := same(t, s, segs...)
	for _, row := range Collect(t, o.Records(t.Context(), store.Query{Run: "r-1"})) {
		for _, from := range []time.Time{row.Time.Add(-1), row.Time, row.Time.Add(1)} {
			for _, q := range []store.Query{{Run: "r-1", From: from}, {Run: "r-1", To: from}} {
				wantRows(t, Collect(t, s.Records(t.Context(), q)), Collect(t, o.Records(t.Context(), q)))
			}
		}
	}
}

// testClosingFirst: a closing manifest has no records, and so adds no run to the list.
func testClosingFirst(t *testing.T, s store.Store) {
	segs := Run("r-1", 20, 10)
	closing := segs[len(segs)-1]
	Ingest(t, s, []store.Segment{closing})
	if runs, err := s.Runs(t.Context(), store.Filter{}); err != nil || len(runs) != 0 {
		t.Errorf("runs are %v, %v", runs, err)
	}
	if chain, err := s.Manifests(t.Context(), "", "r-1"); err != nil || len(chain) != 1 || chain[0].Count != 0 {
		t.Errorf("manifests are %v, %v", chain, err)
	}
	Ingest(t, s, segs)
	same(t, s, segs...)
}
