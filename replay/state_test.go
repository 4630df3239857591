package replay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

func TestStateAt(t *testing.T) {
	frames := story()
	run := summary(frames)
	for _, tc := range []struct{ name, at string }{
		{"state-start.txt", "+5ms"},
		{"state-middle.txt", "12:00:00.097"},
		{"state-frozen.txt", "2026-11-03T12:00:00.155Z"},
		{"state-end.txt", "+1m"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			at, err := ParseInstant(tc.at, run, storetest.Start().Add(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			s, err := StateAt(run, rowsOf(frames), at, 3)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := s.Write(&out, run.Start, Options{}); err != nil {
				t.Fatal(err)
			}
			golden(t, tc.name, out.Bytes())
			checkClean(t, out.Bytes(), Options{})
		})
	}
}

func TestParseInstant(t *testing.T) {
	day := time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)
	end := day.Add(26 * time.Hour)
	run := store.Run{Start: day.Add(23*time.Hour + 59*time.Minute), End: &end} // 23:59 to 02:00
	for text, want := range map[string]time.Duration{
		"+1.5s":                     23*time.Hour + 59*time.Minute + 1500*time.Millisecond,
		"23:59":                     23*time.Hour + 59*time.Minute,
		"23:59:30":                  23*time.Hour + 59*time.Minute + 30*time.Second,
		"23:59:30.25":               23*time.Hour + 59*time.Minute + 30250*time.Millisecond,
		"01:30":                     25*time.Hour + 30*time.Minute,
		"2026-11-04T01:00:00Z":      25 * time.Hour,
		"2026-11-04T02:00:00+01:00": 25 * time.Hour,
	} {
		got, err := ParseInstant(text, run, end)
		if want := day.Add(want + time.Millisecond - 1); err != nil || !got.Equal(want) {
			t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "noon", "+", "+-1s", "-1s", "25:00", "03:00", "12:00", "2026-11-03T00:00:00Z", "+1"} {
		if got, err := ParseInstant(text, run, end); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

// TestTreeOracle compares the processes of a random run with a slow answer that
// looks at all pairs: who runs, and who is whose nearest running ancestor.
func TestTreeOracle(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		events, parent, alive := randomProcesses(random)
		frames := storetest.Frames("r-1", events)
		s, err := StateAt(summary(frames), rowsOf(frames), storetest.Start().Add(time.Hour), 0)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		collectTree(got, "", s.Procs)
		if len(got) != len(alive) {
			t.Fatalf("%d processes in the tree, %d run", len(got), len(alive))
		}
		for proc := range alive {
			want := parent[proc]
			for want != "" && !alive[want] {
				want = parent[want]
			}
			if got[proc] != want {
				t.Fatalf("%s hangs below %q, want %q", proc, got[proc], want)
			}
		}
	}
}

func randomProcesses(random *rand.Rand) (events []audit.Event, parent map[string]string, alive map[string]bool) {
	parent, alive = map[string]string{}, map[string]bool{}
	for i := range 40 {
		now := storetest.Start().Add(time.Duration(i) * time.Millisecond)
		name := fmt.Sprint("p", i)
		if i > 0 {
			parent[name] = fmt.Sprint("p", random.IntN(i))
		}
		alive[name] = true
		events = append(events, audit.Event{Time: now, Observer: audit.Guest, Kind: audit.KindExec,
			Exec: &audit.Exec{Proc: name, Parent: parent[name], PID: i + 10, Exe: "/bin/x", Argv: []audit.Text{"x"}}})
		if dead := fmt.Sprint("p", random.IntN(i+1)); random.IntN(2) == 0 && alive[dead] {
			delete(alive, dead)
			events = append(events, audit.Event{Time: now, Observer: audit.Guest, Kind: audit.KindExit, Exit: &audit.Exit{Proc: dead}})
		}
	}
	return events, parent, alive
}

func collectTree(into map[string]string, above string, procs []*Process) {
	for _, p := range procs {
		into[p.Proc] = above
		collectTree(into, p.Proc, p.Children)
	}
}

// TestCircularParents: a guest can claim any parent.
func TestCircularParents(t *testing.T) {
	var events []audit.Event
	for _, pair := range [][2]string{{"a", "b"}, {"b", "c"}, {"c", "a"}, {"d", "d"}, {"", ""}} {
		events = append(events, audit.Event{Time: storetest.Start(), Observer: audit.Guest, Kind: audit.KindExec,
			Exec: &audit.Exec{Proc: pair[0], Parent: pair[1], Argv: []audit.Text{audit.Text(pair[0])}}})
	}
	frames := storetest.Frames("r-1", events)
	s, err := StateAt(summary(frames), rowsOf(frames), storetest.Start(), 0)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	collectTree(got, "", s.Procs)
	if len(got) != 5 {
		t.Errorf("%d of 5 processes are in the tree: %v", len(got), got)
	}
	timeline(t, frames, Options{})
}

func TestGuestCannotEndARun(t *testing.T) {
	code := 0
	frames := storetest.Frames("r-1", []audit.Event{
		{Time: storetest.Start(), Observer: audit.Host, Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart, Project: "shop"}},
		{Time: storetest.Start(), Observer: audit.Guest, Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{Phase: audit.PhaseEnd, ExitCode: &code}},
		{Time: storetest.Start(), Observer: audit.Guest, Kind: audit.KindGap, Gap: &audit.Gap{Stage: "wal", First: 4, Last: 100, Count: 97}},
	})
	late := storetest.Frame("r-1", 101, audit.Event{Time: storetest.Start(), Observer: audit.Host, Kind: audit.KindVM, VM: &audit.VM{Op: "thaw"}})
	frames = append(frames, late)
	if run := summary(frames); run.Status != store.Running {
		t.Errorf("status %s", run.Status)
	}
	if out := string(timeline(t, frames, Options{})); !strings.Contains(out, "RECORDS 4 TO 100 ARE NOT IN THE STORE") {
		t.Errorf("a guest's gap hides missing records:\n%s", out)
	}
}

func TestUndeclared(t *testing.T) {
	for _, tc := range []struct{ gaps, want string }{
		{"", "[{10 20}]"}, {"10-20", "[]"}, {"1-30", "[]"}, {"1-9 21-30", "[{10 20}]"}, {"12-13 15-15", "[{10 11} {14 14} {16 20}]"},
		{"5-10 20-25", "[{11 19}]"}, {"15-18446744073709551615", "[{10 14}]"}, {"12-18 13-14", "[{10 11} {19 20}]"},
	} {
		x := newIndex()
		for _, g := range strings.Fields(tc.gaps) {
			var s span
			fmt.Sscanf(g, "%d-%d", &s.first, &s.last)
			x.declare(s)
		}
		if got := fmt.Sprint(x.undeclared(span{10, 20})); got != tc.want {
			t.Errorf("gaps %q: got %s, want %s", tc.gaps, got, tc.want)
		}
	}
}
