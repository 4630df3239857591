package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

var pageTests = []namedTest{
	{"of runs", testRunPages},
	{"of a search", testSearchPages},
	{"forged places", testForgedPlaces},
	{"text", testText},
	{"a search that is cut off", testCut},
	{"an erased record is not found by its text", testErasedText},
}

// testRunPages lists runs of every kind in pages, and compares with a scan of all.
func testRunPages(t *testing.T, s store.Store) {
	random := rand.New(rand.NewPCG(7, 7))
	var segs []store.Segment
	for i := range 30 {
		id := fmt.Sprintf("%s%02d", []string{"r-", "r-", "a-", "a", "b-a-"}[i%5], random.IntN(90)*10+i%10)
		segs = append(segs, owned([]string{"", "a", "b"}[random.IntN(3)], "h", Segments(id, Frames(id, someRun(random)), 4))...)
	}
	segs = distinct(segs)
	Ingest(t, s, segs)
	o := same(t, s, segs...)
	for range 60 {
		f := randomFilter(random)
		f.Limit = 0
		want, _ := o.Runs(t.Context(), f)
		f.Limit = 1 + random.IntN(7)
		var got []store.Run
		for {
			page, err := s.Runs(t.Context(), f)
			if err != nil || len(page) > f.Limit {
				t.Fatalf("%+v: %d runs, %v", f, len(page), err)
			}
			if got = append(got, page...); len(page) < f.Limit {
				break
			}
			f.Before = &store.Run{ID: page[len(page)-1].ID, Start: page[len(page)-1].Start} // the contents of a cursor
		}
		if len(got) != len(want) {
			t.Fatalf("%+v: %v, want %v", f, names(got), names(want))
		}
		for i := range want {
			wantRun(t, got[i], want[i])
		}
	}
}

// distinct drops runs with duplicate names.
func distinct(segs []store.Segment) []store.Segment {
	tenants := map[string]string{}
	return slices.DeleteFunc(segs, func(s store.Segment) bool {
		have, ok := tenants[s.Run]
		if s.Index == 0 && !ok {
			tenants[s.Run], have, ok = s.Tenant, s.Tenant, true
		}
		return have != s.Tenant
	})
}

func names(runs []store.Run) (ids []string) {
	for _, r := range runs {
		ids = append(ids, r.ID)
	}
	return ids
}

// someRun begins at one of few moments, and may have findings and no start or end.
func someRun(random *rand.Rand) []audit.Event {
	events := Events(8)
	if random.IntN(3) == 0 {
		events[3] = audit.Event{Observer: audit.Host, Kind: audit.KindFinding, Finding: &audit.Finding{Rule: "x"}}
	}
	if random.IntN(3) == 0 {
		events[7].Lifecycle.Status = audit.StatusInterrupted
	}
	if random.IntN(3) == 0 {
		events[0].Lifecycle.Project = "other"
	}
	begin := time.Duration(random.IntN(5)) * 1000000001 // nanoseconds count
	for i := range events {
		events[i].Time = start.Add(begin + time.Duration(i)*time.Millisecond)
	}
	return events[random.IntN(4)/3 : 8-random.IntN(4)/3]
}

func randomFilter(random *rand.Rand) store.Filter {
	f := store.Filter{
		Tenant:   []string{"", store.NoTenant, "a", "b", "c"}[random.IntN(5)],
		Class:    []store.Class{"", "", store.Sandboxes, store.Accesses, "none"}[random.IntN(5)],
		Project:  []string{"", "", "shop", "other"}[random.IntN(4)],
		Status:   []store.Status{"", "", store.Running, store.Sealed, store.Interrupted}[random.IntN(5)],
		Findings: random.IntN(3) == 0,
	}
	if random.IntN(3) == 0 {
		f.From = start.Add(time.Duration(random.IntN(5)) * 1000000001)
	}
	if random.IntN(3) == 0 {
		f.To = start.Add(time.Duration(random.IntN(5)) * 1000000001)
	}
	return f
}

// crowd are runs of several tenants, with many records of one time.
func crowd(random *rand.Rand) []store.Segment {
	var segs []store.Segment
	for i := range 4 {
		segs = append(segs, randomRun(random, fmt.Sprint("r-", i))...)
	}
	return segs
}

// testSearchPages goes through searches page by page.
func testSearchPages(t *testing.T, s store.Store) {
	random := rand.New(rand.NewPCG(8, 8))
	segs := crowd(random)
	Ingest(t, s, segs)
	o := same(t, s, segs...)
	all := searches()
	for range 60 {
		q := all[random.IntN(len(all))]
		q.Limit, q.Before = 0, nil
		q.Tenant = []string{"", store.NoTenant, "a", "b"}[random.IntN(4)]
		want := Collect(t, o.Search(t.Context(), q))
		q.Limit = 1 + random.IntN(9)
		var got []store.Row
		for {
			page := Collect(t, s.Search(t.Context(), q))
			if got = append(got, page...); len(page) < q.Limit {
				break
			}
			last := page[len(page)-1]
			q.Before = &store.Head{Time: last.Time, Run: last.Run, Seq: last.Seq}
		}
		wantRows(t, got, want)
	}
}

// testForgedPlaces begins pages at positions without a record.
func testForgedPlaces(t *testing.T, s store.Store) {
	segs := slices.Concat(Run("r-1", 20, 10), owned("a", "h", Run("r-2", 20, 10)))
	Ingest(t, s, segs)
	o := same(t, s, segs...)
	for _, at := range []time.Time{{}, time.Unix(-1<<40, 0), time.Unix(0, 0), start, start.Add(7 * time.Millisecond), time.Unix(1<<40, 0)} {
		for _, run := range []string{"", "r-1", "r-1'\\", "\xff\x00", "r-2"} {
			for _, seq := range []uint64{0, 5, store.MaxSeq, 1<<64 - 1} {
				wantFound(t, s, o, store.Search{From: start, Before: &store.Head{Time: at, Run: run, Seq: seq}, Limit: 3})
			}
			f := store.Filter{Before: &store.Run{ID: run, Start: at}, Limit: 1}
			want, _ := o.Runs(t.Context(), f)
			got, err := s.Runs(t.Context(), f)
			if err != nil || fmt.Sprint(names(got)) != fmt.Sprint(names(want)) {
				t.Errorf("behind run %q of %v: %v, %v, want %v", run, at, names(got), err, names(want))
			}
		}
	}
}

// testText searches for text that a pattern would interpret differently.
func testText(t *testing.T, s store.Store) {
	texts := append(AnyText(), "100%", "100x", "a_b", "axb", "*", "a*b", "ÄÖ", "äö", "\u212a elvin", "k elvin", "[a-z]", `\`, `\\`, "it's", `"`, "ſ", "S", "\x80", "x\x9f")
	var events []audit.Event
	for i, text := range texts {
		events = append(events, audit.Event{Time: start.Add(time.Duration(i) * time.Second), Observer: audit.Guest, Kind: audit.KindOutput,
			Step: "s", Output: &audit.Output{Stream: "tty", Text: text}})
	}
	odd := []byte("{\"run\":\"r-2\",\"seq\":1,\"time\":\"2026-11-03T12:00:00Z\",\"kind\":\"Odd KIND\",\"x\":\"\xc3\xff\xfe\x80 \xe2\x82\"}")
	segs := append(Segments("r-1", Frames("r-1", events), 9), Segments("r-2", []store.Frame{{Seq: 1, Body: odd}}, 9)...)
	Ingest(t, s, segs)
	o := same(t, s, segs...)
	asked := []string{"%", "_", "0%", "a_b", "A_B", "AXB", "*", "?", "?*", "[A-Z]", "[a-z]", `\`, `\\`, `\u`, `"`, "'", "it's", "''", `"text":"`, "TEXT\":\"S\"",
		"ÄÖ", "äö", "ä", "k ELVIN", "\u212a", "s", "ſ", "odd kind", "\xff\xfe", "\xfe\x80", "\x80", "\xe2\x82", "\xc3", "\x00", "r-1\x00", "\n", "", "no such thing", `{"v":1`, "}", "--", "{x:String}", "$1", "?1", "@a"}
	for _, text := range texts {
		asked = append(asked, string(text))
	}
	for _, text := range asked {
		q := store.Search{Text: text, Limit: 50}
		if text == "" {
			q.From = start
		}
		wantFound(t, s, o, q)
	}
}

// testCut ends the context during a search, and continues at the position in its error.
func testCut(t *testing.T, s store.Store) {
	segs := slices.Concat(Run("r-1", 300, 100), Run("r-2", 300, 100))
	Ingest(t, s, segs)
	o := same(t, s, segs...)
	for _, q := range []store.Search{{From: start}, {Text: "T"}, {Path: "/usr/bin/git", Tenant: store.NoTenant}} {
		want := Collect(t, o.Search(t.Context(), q))
		for _, after := range []int{0, 1, 70} {
			got, cut := cutOff(t, s, q, after)
			if after == 0 && cut == nil {
				t.Fatalf("%+v: a context that was over was not minded", q)
			}
			if cut != nil {
				rest := q
				rest.Before = &cut.At
				got = append(got, Collect(t, s.Search(t.Context(), rest))...)
			}
			wantRows(t, got, want)
		}
	}
}

// cutOff reads a search and ends its context after so many rows.
func cutOff(t *testing.T, s store.Store, q store.Search, after int) (rows []store.Row, cut *store.CutError) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if after == 0 {
		cancel()
	}
	for row, err := range s.Search(ctx, q) {
		if err != nil {
			if !errors.As(err, &cut) || !errors.Is(err, context.Canceled) {
				t.Fatalf("%+v: it ended with %v, want a CutError", q, err)
			}
			continue
		}
		if cut != nil {
			t.Fatalf("%+v: a row came behind the end", q)
		}
		if rows = append(rows, row); len(rows) == after {
			cancel()
		}
	}
	return rows, cut
}

func testErasedText(t *testing.T, s store.Store) {
	segs := Run("r-1", 30, 10)
	Ingest(t, s, segs)
	o := same(t, s, segs...)
	erase(t, "r-1", 3, s, o)
	erase(t, "r-1", 15, s, o)
	for _, text := range []string{"one line", "r-1", "git", `"seq":3,`, "0"} {
		wantFound(t, s, o, store.Search{Text: text})
	}
}
