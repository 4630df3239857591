package replay

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// shownSeqs reads the column SEQ of a timeline.
func shownSeqs(text []byte) (seqs []uint64) {
	for line := range strings.Lines(string(text)) {
		var seq uint64
		var clock string
		if n, _ := fmt.Sscanf(line, "%d %s", &seq, &clock); n == 2 && strings.Count(clock, ":") == 2 {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// TestTimelineWindow compares the records that are shown of each part of a run's time with those that lie in it. An exit
// has a line of its own where that of its exec is not shown.
func TestTimelineWindow(t *testing.T) {
	frames := story()
	var rows []store.Row
	execs := map[string]uint64{}
	for row := range rowsOf(frames) {
		rows = append(rows, row)
		if r, err := decode(row); err == nil && r.Exec != nil {
			execs[r.Exec.Proc] = row.Seq
		}
	}
	for from := 0; from <= 180; from += 5 {
		for until := from + 1; until <= 185; until += 7 {
			opt := Options{From: storetest.Start().Add(time.Duration(from) * time.Millisecond), Until: storetest.Start().Add(time.Duration(until) * time.Millisecond)}
			in := func(seq uint64) bool {
				i := slices.IndexFunc(rows, func(r store.Row) bool { return r.Seq == seq })
				return i >= 0 && !rows[i].Time.Before(opt.From) && rows[i].Time.Before(opt.Until)
			}
			var want []uint64
			var events int
			for _, row := range rows {
				if !in(row.Seq) {
					continue
				}
				events++
				if r, err := decode(row); err == nil && r.Exit != nil && in(execs[r.Exit.Proc]) {
					continue
				}
				want = append(want, row.Seq)
			}
			text := timeline(t, frames, opt)
			if got := shownSeqs(text); !slices.Equal(got, want) {
				t.Fatalf("from %d to %d ms: shown are %v, want %v\n%s", from, until, got, want, text)
			}
			if line := fmt.Sprintf("%s in this time of %d in all", plural(events, "event"), len(rows)); !bytes.Contains(text, []byte(line)) {
				t.Fatalf("from %d to %d ms: no %q in\n%s", from, until, line, text)
			}
			var part, ndjson bytes.Buffer
			if err := Records(&part, summary(frames), rowsOf(frames), opt); err != nil {
				t.Fatal(err)
			}
			if got := shownSeqs(part.Bytes()); !slices.Equal(got, want) {
				t.Fatalf("from %d to %d ms: Records shows %v, want %v\n%s", from, until, got, want, part.Bytes())
			}
			if err := NDJSON(&ndjson, rowsOf(frames), opt); err != nil || bytes.Count(ndjson.Bytes(), []byte("\n")) != events {
				t.Fatalf("from %d to %d ms: %v, %d lines of JSON, want %d", from, until, err, bytes.Count(ndjson.Bytes(), []byte("\n")), events)
			}
		}
	}
}

// TestWindowWrong: a record that is not what was signed is shown whatever its time claims.
func TestWindowWrong(t *testing.T) {
	opt := Options{From: storetest.Start().Add(time.Hour), Mark: func(r store.Row) store.Mark {
		if r.Seq == 9 {
			return store.Mark{State: store.Fails, Text: "changed"}
		}
		return store.Mark{State: store.Holds}
	}}
	if text := timeline(t, story(), opt); !bytes.Contains(text, []byte("RECORD 9: NOT WHAT WAS SIGNED")) {
		t.Errorf("got\n%s", text)
	}
	var ndjson bytes.Buffer
	if err := NDJSON(&ndjson, rowsOf(story()), opt); err != nil || bytes.Count(ndjson.Bytes(), []byte("\n")) != 1 {
		t.Errorf("%v, %s", err, ndjson.Bytes())
	}
}

func TestZone(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	frames := story()
	opt := Options{Zone: berlin, Kinds: []audit.Kind{audit.KindVM}}
	text := string(timeline(t, frames, opt))
	for _, want := range []string{"began 2026-11-03 13:00:00.000 CET", "  2  13:00:00.001  "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	var runs, hits, part bytes.Buffer
	if err := Runs(&runs, []store.Run{summary(frames)}, time.Now(), opt); err != nil || !strings.Contains(runs.String(), "2026-11-03 13:00:00 CET  ") || strings.Contains(runs.String(), "UTC") {
		t.Errorf("%v, %s", err, runs.String())
	}
	if n, err := Hits(&hits, rowsOf(frames[:1]), opt); n != 1 || err != nil || !strings.HasPrefix(hits.String(), "2026-11-03 13:00:00.000 CET  ") {
		t.Errorf("%v, %s", err, hits.String())
	}
	state, err := StateAt(summary(frames), rowsOf(frames), storetest.Start().Add(time.Second), 0)
	if err == nil {
		err = state.Write(&part, storetest.Start(), opt)
	}
	if err != nil || !strings.Contains(part.String(), "2026-11-03 13:00:01.000 CET (+1.000s)") {
		t.Errorf("%v, %s", err, part.String())
	}
}

func TestWithZone(t *testing.T) {
	for text, want := range map[string]string{
		"2026-11-03":                "2026-11-03 Europe/Berlin",
		"2026-11-03 14:32":          "2026-11-03 14:32 Europe/Berlin",
		"2026-11-03T14:32:05.5":     "2026-11-03T14:32:05.5 Europe/Berlin",
		"14:32":                     "14:32 Europe/Berlin",
		"2026-11-03T14:32:05Z":      "2026-11-03T14:32:05Z",
		"2026-11-03 +02:00":         "2026-11-03 +02:00",
		"2026-11-03 Asia/Tokyo":     "2026-11-03 Asia/Tokyo",
		"2026-11-03T14:32:05-07:00": "2026-11-03T14:32:05-07:00",
		"+1.5s":                     "+1.5s",
		"yesterday":                 "yesterday",
		"":                          "",
	} {
		if got := WithZone(text, "Europe/Berlin"); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
		if got := WithZone(text, ""); got != text {
			t.Errorf("%q without a zone: got %q", text, got)
		}
	}
}

// TestHitRuns counts what a search found in a slow way.
func TestHitRuns(t *testing.T) {
	var rows []store.Row
	for i := range 60 {
		run := fmt.Sprintf("r-%d", i*i%7)
		rows = append(rows, store.Row{Head: store.Head{Run: run, Seq: uint64(100 - i), Time: storetest.Start().Add(-time.Duration(i) * time.Second)}})
	}
	opt := Options{Mark: func(r store.Row) store.Mark {
		if r.Seq%10 == 0 {
			return store.Mark{State: store.Fails}
		}
		return store.Mark{State: store.Holds}
	}}
	runs, err := HitRuns(func(yield func(store.Row, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}, opt)
	if err != nil {
		t.Fatal(err)
	}
	var total uint64
	for i, r := range runs {
		var count, wrong uint64
		var first, last Hit
		for _, row := range rows {
			if row.Run != r.Run {
				continue
			}
			if count++; row.Seq%10 == 0 {
				wrong++
			}
			if h := (Hit{row.Seq, row.Time}); count == 1 {
				first, last = h, h
			} else if h.Time.Before(first.Time) {
				first = h
			} else if h.Time.After(last.Time) {
				last = h
			}
		}
		if want := (RunHits{r.Run, count, first, last, wrong}); r != want {
			t.Errorf("got %+v, want %+v", r, want)
		}
		if i > 0 && runs[i-1].Last.Time.Before(r.Last.Time) {
			t.Errorf("%s stands before %s, which has the newer record", runs[i-1].Run, r.Run)
		}
		total += count
	}
	if total != uint64(len(rows)) {
		t.Errorf("%d records counted, want %d", total, len(rows))
	}
	var table bytes.Buffer
	if err := HitRunTable(&table, runs, Options{}); err != nil || strings.Count(table.String(), "\n") != len(runs)+1 || !strings.Contains(table.String(), "not what was signed") {
		t.Errorf("%v\n%s", err, table.String())
	}
}
