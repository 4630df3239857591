package asciicast_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export/format/asciicast"
	"github.com/custody-project/custody/export/internal/sample"
	"github.com/custody-project/custody/store"
)

var began = time.Date(2026, 11, 21, 8, 0, 0, 500e6, time.UTC)

// script makes rows, a tenth of a second apart.
type script []store.Row

func (s *script) add(e audit.Event) {
	seq := uint64(len(*s) + 1)
	if e.Time.IsZero() {
		e.Time = began.Add(time.Duration(seq-1) * 100 * time.Millisecond)
	}
	body, err := json.Marshal(audit.Record{V: 1, Run: "r-cast", Seq: seq, Event: e})
	if err != nil {
		panic(err)
	}
	*s = append(*s, store.Row{Head: store.Head{Run: "r-cast", Seq: seq, Time: e.Time, Kind: e.Kind, Step: e.Step}, Body: body})
}

func (s *script) output(step, stream string, offset int64, text string) {
	s.add(audit.Event{Observer: audit.Host, Kind: audit.KindOutput, Step: step, Output: &audit.Output{Stream: stream, Offset: offset, Text: audit.Text(text)}})
}

func (s script) rows() iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		for _, r := range s {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func run() store.Run { return store.Run{ID: "r-cast", Start: began} }

// event is one line of a recording.
type event struct {
	at   float64
	code string
	data string
}

// cast writes a recording, and checks each line against the published format.
func cast(t testing.TB, rows iter.Seq2[store.Row, error], o asciicast.Options) (head map[string]any, events []event) {
	t.Helper()
	var b bytes.Buffer
	if err := asciicast.Write(&b, run(), rows, o); err != nil {
		t.Fatal(err)
	}
	return read(t, b.Bytes())
}

func read(t testing.TB, data []byte) (head map[string]any, events []event) {
	t.Helper()
	if !utf8.Valid(data) {
		t.Fatal("no UTF-8")
	}
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		if i == 0 {
			if err := json.Unmarshal([]byte(line), &head); err != nil {
				t.Fatal(err)
			}
			for _, k := range []string{"version", "width", "height"} {
				if n, ok := head[k].(float64); !ok || n < 1 {
					t.Errorf("header: %s is %v", k, head[k])
				}
			}
			if head["version"] != 2.0 {
				t.Errorf("version %v", head["version"])
			}
			continue
		}
		var parts []any
		if err := json.Unmarshal([]byte(line), &parts); err != nil || len(parts) != 3 {
			t.Fatalf("line %d: %s", i+1, line)
		}
		e := event{parts[0].(float64), parts[1].(string), parts[2].(string)}
		if e.code != "o" && e.code != "m" {
			t.Errorf("line %d: an event %q", i+1, e.code)
		}
		if e.at < 0 || len(events) > 0 && e.at < events[len(events)-1].at {
			t.Errorf("line %d: time goes back", i+1)
		}
		events = append(events, e)
	}
	return head, events
}

func shown(events []event, code string) (all string) {
	for _, e := range events {
		if e.code == code {
			all += e.data
			if code == "m" {
				all += "\n"
			}
		}
	}
	return all
}

func TestWrite(t *testing.T) {
	var s script
	zero := 0
	s.add(audit.Event{Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart}})
	s.add(audit.Event{Kind: audit.KindStep, Step: "a", Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart, Name: "a", Argv: []audit.Text{"sh", "-c", "echo \x1b[2J"}}})
	s.output("a", "stdout", 0, "one\ntwo\r\nthr\xc3")
	s.output("a", "stderr", 0, "bad: \xff\n")
	s.output("a", "stdout", 13, "\xa9e [REDACTED:x:ab]\n")
	s.output("a", "tty", 0, "\x1b[31mred\n\r\n")
	s.output("a", "stdout", 100, "later\n")
	s.add(audit.Event{Kind: audit.KindGap, Gap: &audit.Gap{Stage: "output", Bytes: 77, Cause: "record.output"}})
	s.add(audit.Event{Kind: audit.KindVM, VM: &audit.VM{Op: "freeze", Reason: "no space"}, Time: began})
	s.output("a", "stdout", 106, "half \xe2\x82")
	s.add(audit.Event{Kind: audit.KindStep, Step: "a", Lifecycle: &audit.Lifecycle{Phase: audit.PhaseEnd, Name: "a", Status: audit.StatusDone, ExitCode: &zero}})
	s = append(s, store.Row{Head: store.Head{Seq: 12, Time: began.Add(2 * time.Second)}, Erased: &[32]byte{}})
	s.output("b", "stdout", 0, "second step\n")

	head, events := cast(t, s.rows(), asciicast.Options{})
	if head["timestamp"] != float64(began.Unix()) || head["title"] != "custody r-cast" || head["width"] != 80.0 || head["height"] != 24.0 {
		t.Errorf("%v", head)
	}
	want := "one\r\ntwo\r\nthr" + "bad: \ufffd\r\n" + "ée [REDACTED:x:ab]\r\n" + "\x1b[31mred\n\r\n" + "later\r\n" + "half " + "\ufffd\ufffd" + "second step\r\n"
	if got := shown(events, "o"); got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
	marks := `step a: sh -c 'echo \x1b[2J'
stdout of step a: bytes 32 to 100 are not in these records
output is missing, 77 bytes: record.output
freeze: no space
step a: done, exit code 0
record 12 was erased
`
	if got := shown(events, "m"); got != marks {
		t.Errorf("%s\nwant %s", got, marks)
	}
	if events[1].at != 0.2 || events[len(events)-1].at != 2 {
		t.Errorf("%v", events)
	}
	_, events = cast(t, s.rows(), asciicast.Options{Step: "b", Stream: "stdout", Width: 120, Height: 40})
	if got := shown(events, "o"); got != "second step\r\n" {
		t.Errorf("%q", got)
	}
	_, events = cast(t, s.rows(), asciicast.Options{Stream: "stderr"})
	if got := shown(events, "o"); got != "bad: \ufffd\r\n" {
		t.Errorf("%q", got)
	}
}

// TestPieces: the boundaries of output pieces make no difference.
func TestPieces(t *testing.T) {
	text := "a\nb\r\n文字 é \U0001f600\n"
	var whole script
	whole.output("s", "stdout", 0, text)
	_, events := cast(t, whole.rows(), asciicast.Options{})
	want := shown(events, "o")
	for n := 1; n < 7; n++ {
		var s script
		at := int64(0)
		for piece := range slices.Chunk([]byte(text), n) {
			s.output("s", "stdout", at, string(piece))
			at += int64(len(piece))
		}
		_, events := cast(t, s.rows(), asciicast.Options{})
		if got := shown(events, "o"); got != want || shown(events, "m") != "" {
			t.Errorf("pieces of %d: %q, want %q", n, got, want)
		}
	}
}

// TestAsciinema reads a recording with asciinema.
func TestAsciinema(t *testing.T) {
	var s script
	s.output("s", "tty", 0, "\x1b[1;31mred\x1b[0m\u2028 </script> 文\r\n")
	s.add(audit.Event{Kind: audit.KindStep, Step: "s", Lifecycle: &audit.Lifecycle{Phase: audit.PhaseEnd, Name: "s"}})
	s.output("s", "tty", 24, "later")
	path := filepath.Join(t.TempDir(), "run.cast")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(asciicast.Write(f, run(), s.rows(), asciicast.Options{}), f.Close()); err != nil {
		t.Fatal(err)
	}
	const program = `
import json, sys
from asciinema import asciicast
with asciicast.open_from_url(sys.argv[1]) as a:
    print(json.dumps([a.v2_header["title"], list(a.stdout_events())]))
`
	out, err := exec.Command("/usr/bin/python3", "-c", program, path).CombinedOutput()
	if err != nil {
		t.Fatalf("asciinema (Debian's package of that name) cannot read it: %v\n%s", err, out)
	}
	var got []any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := `[custody r-cast [[0 o ` + "\x1b[1;31mred\x1b[0m\u2028 </script> 文\r\n" + `] [0.2 o later]]]`
	if fmt.Sprint(got) != want {
		t.Errorf("%q, want %q", fmt.Sprint(got), want)
	}
}

// FuzzWrite: any record gives a valid recording.
func FuzzWrite(f *testing.F) {
	for _, s := range sample.All() {
		f.Add([]byte(s.Body), []byte(s.Body))
	}
	f.Add([]byte(`{"kind":"output","step":"\u0000","output":{"stream":"stdout","offset":-1,"text":{"base64":"/w=="}}}`), []byte("{}"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var rows []store.Row
		for i, body := range [][]byte{a, b, a} {
			h, _ := store.ParseHead(body)
			h.Seq = uint64(i)
			rows = append(rows, store.Row{Head: h, Body: body})
		}
		cast(t, script(rows).rows(), asciicast.Options{})
	})
}

// BenchmarkWrite measures 1 MiB of output in pieces of 4 KiB.
func BenchmarkWrite(b *testing.B) {
	var s script
	for i := range 256 {
		s.output("s", "stdout", int64(i)<<12, strings.Repeat("a line of output, as programs write it: 0123456789 <&> abcdefg\n", 64))
	}
	b.SetBytes(256 << 12)
	for b.Loop() {
		if err := asciicast.Write(io.Discard, run(), s.rows(), asciicast.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
