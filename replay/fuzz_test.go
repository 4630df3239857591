package replay

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// FuzzTimeline shows whatever stands in a row, between rows that are sound, in
// every form: it never panics and never writes a raw control character.
func FuzzTimeline(f *testing.F) {
	for _, frame := range story() {
		f.Add(frame.Body, uint64(0), 80)
	}
	for _, frame := range traffic() {
		f.Add(frame.Body, uint64(0), 80)
	}
	f.Add([]byte(`{"kind":"exec","exec":{"proc":"b-100-1","parent":"b-100-1","argv":["\u202e",{"base64":"G1sySg=="}],"pid":-1}}`), uint64(3), 1)
	f.Add([]byte(`{"kind":"gap","observer":"host","gap":{"first":1,"last":18446744073709551615,"count":18446744073709551615}}`), uint64(1<<63), 0)
	f.Add([]byte(`{"kind":"exit","exit":{"proc":"b-100-1","duration_ns":-5}}`), uint64(0), 7)
	f.Add([]byte(`{"kind":"\u001b[2J","\u001b[2J":{"a":"\u202e"}}`), uint64(0), 7)
	known := append(story()[4:9], traffic()[5:8]...) // execs and a flow that the input can refer to
	run := summary(known)
	f.Fuzz(func(t *testing.T, body []byte, jump uint64, width int) {
		rows := fuzzRows(append(slices.Clone(known), store.Frame{Seq: 1000 + jump, Body: body}))
		for _, opt := range []Options{{}, {Width: width & 0xff, Color: true}, {Width: 100, Relative: true, Kinds: []audit.Kind{audit.KindExit}}} {
			var out bytes.Buffer
			if err := Timeline(&out, run, rows, opt); err != nil {
				t.Fatal(err)
			}
			checkClean(t, out.Bytes(), opt)
			out.Reset()
			s, err := StateAt(run, rows, storetest.Start().Add(time.Hour), 5)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Write(&out, run.Start, opt); err != nil {
				t.Fatal(err)
			}
			checkClean(t, out.Bytes(), opt)
		}
	})
}

// fuzzRows takes the columns from the body without the checks of a store.
func fuzzRows(frames []store.Frame) Rows {
	return func(yield func(store.Row, error) bool) {
		for _, f := range frames {
			var r audit.Record
			_ = json.Unmarshal(f.Body, &r)
			h := store.Head{Run: r.Run, Seq: f.Seq, Time: r.Time, Observer: r.Observer, Kind: r.Kind, Step: r.Step}
			if !yield(store.Row{Head: h, Body: f.Body}, nil) {
				return
			}
		}
	}
}

// FuzzParseInstant: what is read lies within what the run's times can be.
func FuzzParseInstant(f *testing.F) {
	for _, seed := range []string{"+1.5s", "12:03", "12:03:04.5", "2026-11-03T12:00:00Z", "+-1h", "+9999999h", "24:00"} {
		f.Add(seed)
	}
	run := store.Run{Start: storetest.Start()}
	f.Fuzz(func(t *testing.T, text string) {
		at, err := ParseInstant(text, run, storetest.Start().Add(30*time.Hour))
		if err != nil {
			checkClean(t, []byte(err.Error()), Options{})
		} else if at.Before(run.Start) || at.Nanosecond()%1e6 != 999999 {
			t.Fatalf("%q was read as %v", text, at)
		}
	})
}

func BenchmarkTimeline(b *testing.B) {
	const records = 100000
	frames := storetest.Frames("r-1", storetest.Events(records))
	run, rows := summary(frames), asRows(benchRows(frames))
	for b.Loop() {
		if err := Timeline(discard{}, run, rows, Options{Width: 160, Color: true}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(records*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkStateAt(b *testing.B) {
	const records = 100000
	frames := storetest.Frames("r-1", storetest.Events(records))
	run, rows := summary(frames), asRows(benchRows(frames))
	for b.Loop() {
		if _, err := StateAt(run, rows, storetest.Start().Add(time.Hour), 10); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(records*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

func benchRows(frames []store.Frame) (rows []store.Row) {
	for row := range rowsOf(frames) {
		rows = append(rows, row)
	}
	return rows
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
