package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from testdata/%s (go test -update writes it anew):\n%s", name, got)
	}
}

// rowsOf gives frames as a store would.
func rowsOf(frames []store.Frame) Rows {
	return func(yield func(store.Row, error) bool) {
		for _, f := range frames {
			head, err := store.ParseHead(f.Body)
			if err != nil { // a store has taken only readable heads in
				head = store.Head{Run: "r-1", Seq: f.Seq, Kind: audit.KindExec, Time: storetest.Start()}
			}
			if !yield(store.Row{Head: head, Body: f.Body, Salt: f.Salt}, nil) {
				return
			}
		}
	}
}

func summary(frames []store.Frame) store.Run {
	run := store.NewRun("r-1")
	for _, f := range frames {
		if head, err := store.ParseHead(f.Body); err == nil {
			run.Add(head)
		}
	}
	run.Start = run.Began()
	return run
}

// story is a run with a bit of everything, most of it ill-meant.
func story() []store.Frame {
	var frames []store.Frame
	seq := uint64(0)
	at := func(ms int) time.Time { return storetest.Start().Add(time.Duration(ms) * time.Millisecond) }
	add := func(ms int, o audit.Observer, k audit.Kind, e audit.Event) {
		seq++
		e.Time, e.Observer, e.Kind = at(ms), o, k
		if k != audit.KindRun && k != audit.KindVM {
			e.Step = "agent"
		}
		frames = append(frames, storetest.Frame("r-1", seq, e))
	}
	seven, zero := 7, 0
	hash := strings.Repeat("0123456789abcdef", 4)
	const host, guest = audit.Host, audit.Guest
	add(0, host, audit.KindRun, audit.Event{Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart, Project: "shop", Template: "base",
		Tier: "qemu-tcg", TierNote: "software emulation: no security promise", Mode: "strict"}})
	add(1, host, audit.KindVM, audit.Event{VM: &audit.VM{Op: "restore", Driver: "qemu", Tier: "qemu-tcg", DurationNS: 46e6}})
	add(2, host, audit.KindSecret, audit.Event{Secret: &audit.Secret{Name: "git", Op: audit.SecretDeliver}})
	add(50, host, audit.KindStep, audit.Event{Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart, Name: "agent", Argv: []audit.Text{"sh", "-c", "echo hi; exit 7"}}})
	add(60, guest, audit.KindExec, audit.Event{Exec: &audit.Exec{Proc: "b-100-1", PID: 100, PPID: 1, Exe: "/usr/bin/sh", Argv: []audit.Text{"sh", "-c", "echo hi; exit 7"}, Cwd: "/workspace"}})
	add(70, guest, audit.KindExec, audit.Event{Exec: &audit.Exec{Proc: "b-101-2", Parent: "b-100-1", PID: 101, PPID: 100, Exe: "/usr/bin/env", Argv: []audit.Text{"/usr/bin/env", "python3", "it's"}, Cwd: "/workspace"}})
	add(71, guest, audit.KindExec, audit.Event{Exec: &audit.Exec{Proc: "b-101-2", Parent: "b-100-1", PID: 101, PPID: 100, Exe: "/usr/bin/python3.13", Argv: []audit.Text{"python3", "it's"}, Cwd: "/workspace/a b", UID: 1000}})
	add(80, guest, audit.KindExec, audit.Event{Exec: &audit.Exec{Proc: "b-102-3", Parent: "b-101-2", PID: 102, PPID: 101, Exe: "/tmp/evil",
		Argv: []audit.Text{"evil\x1b[2J\x1b]0;owned\x07", "\u202egnp.exe", "tab\there\nand line", "back\\slash'quote\x00", "\xff\xfe", "日本語"}, Cwd: "/tmp/\u200bx", Truncated: true, ArgvBytes: 70000, ArgvSHA256: hash}})
	add(90, guest, audit.KindFile, audit.Event{File: &audit.File{Proc: "b-102-3", PID: 102, Op: audit.FileWrite, Path: "/workspace/out.txt", Size: 4711, SHA256: hash}})
	add(91, guest, audit.KindFile, audit.Event{File: &audit.File{Proc: "b-102-3", PID: 102, Op: audit.FileRename, Path: "/workspace/out.txt", To: "/workspace/\x1b[31mred"}})
	add(92, guest, audit.KindFile, audit.Event{File: &audit.File{Proc: "b-102-3", PID: 102, Op: audit.FileWrite, Path: "/tmp/huge", Size: 3 << 30, Unhashed: "over the limit"}})
	add(93, guest, audit.KindFile, audit.Event{File: &audit.File{Proc: "b-102-3", PID: 102, Op: audit.FileDelete, Path: "/tmp/huge"}})
	add(95, guest, audit.KindFlow, audit.Event{Flow: &audit.Flow{Proc: "b-102-3", PID: 102, State: audit.FlowAttempt, Proto: "tcp", DstIP: "2001:db8::1", DstPort: 443, Errno: 101}})
	add(96, host, audit.KindOutput, audit.Event{Output: &audit.Output{Stream: "stdout", Text: "hi\n\x1b[31mred\x1b[0m\r\n  half a li"}})
	add(97, host, audit.KindOutput, audit.Event{Output: &audit.Output{Stream: "stderr", Text: "\x9b31m \u2066bidi\n"}})
	add(98, host, audit.KindOutput, audit.Event{Output: &audit.Output{Stream: "stdout", Offset: 30, Text: "ne\n"}})
	add(100, guest, audit.KindExit, audit.Event{Exit: &audit.Exit{Proc: "b-102-3", PID: 102, Signal: 9, DurationNS: 20e6}})
	add(110, guest, audit.KindExit, audit.Event{Exit: &audit.Exit{Proc: "b-999-9", PID: 999, Code: 1, DurationNS: 5e3}})
	add(120, guest, audit.KindGap, audit.Event{Gap: &audit.Gap{Stage: "kernel_ring", What: "exec", Count: 42, Cause: "ring\x1b full"}})
	add(121, host, audit.KindFinding, audit.Event{Finding: &audit.Finding{Rule: "connect-without-network", Detail: "tried \u202e443", Proc: "b-102-3"}})
	add(130, guest, audit.KindExit, audit.Event{Exit: &audit.Exit{Proc: "b-101-2", PID: 101, Code: zero, DurationNS: 60e6}})
	seq += 3 // removed from the store
	add(140, guest, audit.KindExit, audit.Event{Exit: &audit.Exit{Proc: "b-100-1", PID: 100, Code: seven, DurationNS: 80e6}})
	seq += 2 // lost, and said so
	add(141, host, audit.KindGap, audit.Event{Gap: &audit.Gap{Stage: "wal", First: seq - 1, Last: seq, Count: 2, Cause: "disk full"}})
	frames = append(frames, store.Frame{Seq: seq + 1, Body: []byte(`{"broken`)},
		store.Frame{Seq: seq + 2, Body: []byte(`{"v":2,"run":"r-1","seq":30,"time":"2026-11-03T12:00:00.142Z","observer":"host","kind":"later","step":"agent","later":{"name":"a\u001bb.example","verdict":"deny"}}`)})
	seq += 2
	add(150, host, audit.KindVM, audit.Event{VM: &audit.VM{Op: "freeze", Reason: "record cannot be written"}})
	add(160, host, audit.KindVM, audit.Event{VM: &audit.VM{Op: "thaw"}})
	add(170, host, audit.KindStep, audit.Event{Lifecycle: &audit.Lifecycle{Phase: audit.PhaseEnd, Name: "agent", ExitCode: &seven, Status: audit.StatusDone, DurationNS: 120e6}})
	add(171, host, audit.KindRun, audit.Event{Lifecycle: &audit.Lifecycle{Phase: audit.PhaseEnd, ExitCode: &seven, Status: audit.StatusDone, DurationNS: 171e6}})
	return frames
}

func timeline(t testing.TB, frames []store.Frame, opt Options) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Timeline(&out, summary(frames), rowsOf(frames), opt); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestTimeline(t *testing.T) {
	for name, opt := range map[string]Options{
		"timeline.txt":          {},
		"timeline-100.txt":      {Width: 100},
		"timeline-relative.txt": {Width: 120, Relative: true, Kinds: []audit.Kind{audit.KindExit, audit.KindFile}},
		"timeline-exec.txt":     {Kinds: []audit.Kind{audit.KindExec}},
		"timeline-color.txt":    {Width: 120, Color: true},
	} {
		t.Run(name, func(t *testing.T) {
			got := timeline(t, story(), opt)
			golden(t, name, got)
			checkClean(t, got, opt)
		})
	}
}

func TestTimelineWidth(t *testing.T) {
	for _, width := range []int{1, 20, 60, 61, 62, 63, 80, 100, 200} {
		for _, l := range strings.Split(string(timeline(t, story(), Options{Width: width})), "\n") {
			if n := textWidth(l); n > width && !strings.Contains(l, "!! ") && !strings.Contains(l, "freeze") {
				t.Errorf("width %d: a line has %d cells: %s", width, n, l)
			}
		}
	}
}

func TestEmptyTimeline(t *testing.T) {
	var out bytes.Buffer
	if err := Timeline(&out, store.NewRun("r-1"), rowsOf(nil), Options{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "0 events, run running") {
		t.Errorf("got %s", out.String())
	}
}

func TestTimelineReadError(t *testing.T) {
	broken := errors.New("injected")
	rows := func(yield func(store.Row, error) bool) { yield(store.Row{}, broken) }
	if err := Timeline(&bytes.Buffer{}, store.Run{}, rows, Options{}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestNDJSON(t *testing.T) {
	frames := storetest.Frames("r-1", storetest.Events(20))
	var want, got, execs bytes.Buffer
	for _, f := range frames {
		want.Write(append(bytes.Clone(f.Body), '\n'))
	}
	if err := errors.Join(NDJSON(&got, rowsOf(frames), Options{}), NDJSON(&execs, rowsOf(frames), Options{Kinds: []audit.Kind{audit.KindExec}})); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Error("lines are not the exact bytes of the records")
	}
	if n := strings.Count(execs.String(), "\n"); n != strings.Count(want.String(), `"kind":"exec"`) || n == 0 {
		t.Errorf("%d lines of kind exec", n)
	}
}

func TestRuns(t *testing.T) {
	sealed := summary(story())
	running := store.NewRun("r-2")
	running.Start = storetest.Start().Add(time.Hour)
	running.Project, running.Tier = "evil\x1b[2J", "qemu-kvm"
	interrupted := sealed
	interrupted.ID, interrupted.Status, interrupted.ExitCode, interrupted.Gaps, interrupted.Findings = "r-0", store.Interrupted, nil, 0, 0
	runs := []store.Run{running, sealed, interrupted}
	var table, ndjson bytes.Buffer
	now := storetest.Start().Add(2 * time.Hour)
	if err := errors.Join(Runs(&table, runs, now, Options{}), RunsJSON(&ndjson, runs, Options{})); err != nil {
		t.Fatal(err)
	}
	golden(t, "runs.txt", table.Bytes())
	golden(t, "runs.json", ndjson.Bytes())
	for _, l := range bytes.Split(bytes.TrimSpace(ndjson.Bytes()), []byte("\n")) {
		var object map[string]any
		if err := json.Unmarshal(l, &object); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"run", "start", "end", "status", "exit_code", "tier", "events", "project", "duration_ns", "template"} {
			if _, there := object[key]; !there {
				t.Errorf("%s lacks %q", l, key)
			}
		}
	}
}
