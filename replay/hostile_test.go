package replay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store/storetest"
)

// hostile are runs in which a guest describes what costs a careless reader most.
func hostile(n int) map[string][]audit.Event {
	const host, guest = audit.Host, audit.Guest
	runs := map[string]*script{}
	tell := func(name string, each func(r *script, i int)) {
		r := &script{}
		r.run(audit.PhaseStart)
		for i := range n {
			each(r, i)
		}
		runs[name] = r
	}
	tell("a chain of parents", func(r *script, i int) { r.exec(fmt.Sprint("p", i), fmt.Sprint("p", i-1), "x") })
	tell("a chain that is told backwards", func(r *script, i int) { r.exec(fmt.Sprint("p", n-i), fmt.Sprint("p", n-i-1), "x") })
	tell("one circle of parents", func(r *script, i int) { r.exec(fmt.Sprint("p", i), fmt.Sprint("p", (i+1)%n), "x") })
	tell("circles of ended parents", func(r *script, i int) {
		r.exec(fmt.Sprint("p", i), fmt.Sprint("p", i^1), "x")
		if i%3 > 0 {
			r.exit(fmt.Sprint("p", i), 0)
		}
	})
	tell("one process again and again", func(r *script, i int) { r.exec("p", "q", "x") })
	tell("children of one parent", func(r *script, i int) { r.exec(fmt.Sprint("p", i), "p0", "x") })
	tell("one file renamed to and fro", func(r *script, i int) {
		r.file("p", audit.FileRename, audit.Text(fmt.Sprint("/", i%2)), audit.Text(fmt.Sprint("/", 1-i%2)), "")
	})
	tell("names of directories", func(r *script, i int) {
		r.file("p", audit.FileWrite, audit.Text(fmt.Sprint("/a/b/", i)), "", "")
		r.file("p", audit.FileRename, "/a", "/b", "")
	})
	tell("one claim from many processes", func(r *script, i int) {
		r.flow(guest, audit.Flow{State: audit.FlowAttempt, Proc: fmt.Sprint("p", i), SrcPort: 1})
		r.flow(host, audit.Flow{ID: fmt.Sprint("f", i), State: audit.FlowOpen, SrcPort: 1})
	})
	tell("claims of many connections", func(r *script, i int) {
		r.flow(guest, audit.Flow{State: audit.FlowAttempt, Proc: "p", SrcPort: 1 + i%60000})
	})
	tell("one name with many answers", func(r *script, i int) {
		r.add(host, audit.KindDNS, audit.Event{DNS: &audit.DNS{Name: "a.example", Proto: "udp", Verdict: audit.Allow, Answers: []string{fmt.Sprint(i)}}})
	})
	tell("gaps and holes", func(r *script, i int) {
		r.add(host, audit.KindGap, audit.Event{Gap: &audit.Gap{Stage: "wal", First: uint64(i*3 + 1), Last: uint64(i*3 + 2), Count: 1}})
	})
	tell("a terminal that is cleared", func(r *script, i int) {
		r.add(host, audit.KindOutput, audit.Event{Output: &audit.Output{Stream: "tty", Text: "\x1b[2J\x1b[9999;9999Hx"}})
	})
	tell("freezes", func(r *script, i int) {
		r.add(host, audit.KindVM, audit.Event{VM: &audit.VM{Op: []string{"freeze", "thaw"}[i%2]}})
	})
	events := map[string][]audit.Event{}
	for name, r := range runs {
		events[name] = r.events
	}
	back := slices.Clone(runs["children of one parent"].events)
	for i := range back { // a clock that runs backwards
		back[i].Time = storetest.Start().Add(-time.Duration(i) * time.Second)
	}
	events["a clock that runs backwards"] = back
	return events
}

// TestHostile asks everything of such runs. What takes time in more than proportion
// to the records shows in its log, and in BenchmarkHostile at twenty times the length.
func TestHostile(t *testing.T) {
	const n = 4000
	for name, events := range hostile(n) {
		frames := storetest.Frames("r-1", events)
		if name == "gaps and holes" {
			for i := range frames {
				frames[i] = storetest.Frame("r-1", uint64(i*3+3), events[i])
			}
		}
		began := time.Now()
		s, err := Read(summary(frames), rowsOf(frames))
		if err != nil {
			t.Fatal(err)
		}
		ask(s, frames[len(frames)/2].Seq)
		t.Logf("%-32s %6d records, %v", name, len(frames), time.Since(began).Round(time.Millisecond))
	}
}

func BenchmarkHostile(b *testing.B) {
	for name, events := range hostile(manyRecords) {
		frames := storetest.Frames("r-1", events)
		run, rows := summary(frames), benchRows(frames)
		s, err := Read(run, asRows(rows))
		if err != nil {
			b.Fatal(err)
		}
		s.StateAt(storetest.Start(), 1)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s.StateAt(storetest.Start().Add(time.Hour*1000), 50)
			}
		})
	}
}

// TestSpans: the set holds what was put in, whatever the order.
func TestSpans(t *testing.T) {
	for _, order := range [][]span{{{1, 3}, {5, 9}, {4, 4}}, {{5, 9}, {1, 3}, {4, 4}}, {{4, 4}, {5, 9}, {1, 3}}, {{1, 9}, {2, 3}, {5, 5}}} {
		var x spans
		for _, s := range order {
			x.add(s)
		}
		if len(x.list) != 1 || x.list[0] != (span{1, 9}) {
			t.Errorf("%v: %v", order, x.list)
		}
	}
	var x spans
	x.add(span{5, ^uint64(0)})
	x.add(span{0, 1})
	x.add(span{^uint64(0), ^uint64(0)})
	if got := fmt.Sprint(x.beyond(span{0, ^uint64(0)}), x.list); got != fmt.Sprint([]span{{2, 4}}, []span{{0, 1}, {5, ^uint64(0)}}) {
		t.Errorf("got %s", got)
	}
}
