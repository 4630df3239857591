package perfetto_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export/format/perfetto"
	"github.com/custody-project/custody/export/internal/sample"
	"github.com/custody-project/custody/store"
)

var began = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// script makes rows, a second apart.
type script []store.Row

func (s *script) add(e audit.Event) uint64 {
	seq := uint64(len(*s) + 1)
	if e.Time.IsZero() {
		e.Time = began.Add(time.Duration(seq) * time.Second)
	}
	if e.Observer == "" {
		e.Observer = audit.Host
	}
	body, err := json.Marshal(audit.Record{V: 1, Run: "r-trace", Seq: seq, Event: e})
	if err != nil {
		panic(err)
	}
	*s = append(*s, store.Row{Head: store.Head{Run: "r-trace", Seq: seq, Time: e.Time, Kind: e.Kind, Step: e.Step, Observer: e.Observer}, Body: body})
	return seq
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

func traceOf(t testing.TB, s script) trace {
	t.Helper()
	var b bytes.Buffer
	if err := perfetto.Write(&b, store.Run{ID: "r-trace", Start: began}, s.rows()); err != nil {
		t.Fatal(err)
	}
	return parse(t, b.Bytes())
}

func one(t testing.TB, tr trace, path, name string) slice {
	t.Helper()
	all := tr.find(path, name)
	if len(all) != 1 {
		t.Fatalf("%d slices %s on %s", len(all), name, path)
	}
	return all[0]
}

// second is the instant n seconds after the run's start.
func second(n int) uint64 { return uint64(began.Add(time.Duration(n) * time.Second).UnixNano()) }

// TestWrite: a run with all that is drawn.
func TestWrite(t *testing.T) {
	var s script
	zero := 0
	proc := func(e audit.Event) audit.Event { e.Observer, e.Step = audit.Guest, "agent"; return e }
	s.add(audit.Event{Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart, Tier: "qemu-tcg"}})
	s.add(audit.Event{Kind: audit.KindStep, Step: "agent", Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart, Name: "agent"}})
	s.add(audit.Event{Kind: audit.KindSecret, Step: "agent", Secret: &audit.Secret{Name: "model", Op: audit.SecretMint}})
	s.add(proc(audit.Event{Kind: audit.KindExec, Exec: &audit.Exec{Proc: "p1", PID: 1, Exe: "/bin/sh", Argv: []audit.Text{"sh"}}}))
	dns := s.add(audit.Event{Kind: audit.KindDNS, DNS: &audit.DNS{Name: "llm.example", Type: "A", RCode: "NOERROR", Verdict: audit.Allow, LatencyNS: 500e6}})
	s.add(audit.Event{Kind: audit.KindFlow, Flow: &audit.Flow{ID: "f1", State: audit.FlowOpen, Proto: "tcp", Name: "llm.example", DstPort: 443, Verdict: audit.Allow, DNSSeq: dns}})
	s.add(audit.Event{Kind: audit.KindSecret, Step: "agent", Secret: &audit.Secret{Name: "model", Op: audit.SecretUse, Flow: "f1"}})
	s.add(audit.Event{Kind: audit.KindLLM, LLM: &audit.LLM{ID: "m1", Provider: "anthropic", Model: "x", DurationNS: 1e9, InputTokens: 7}})
	s.add(audit.Event{Kind: audit.KindHTTP, HTTP: &audit.HTTP{Flow: "f1", Method: "POST", Host: "llm.example", Path: "/v1", Verdict: audit.Allow, LLM: "m1", DurationNS: 2e9}})
	s.add(proc(audit.Event{Kind: audit.KindExec, Exec: &audit.Exec{Proc: "p2", Parent: "p1", PID: 2, Exe: "/usr/bin/git", Argv: []audit.Text{"git", "\x1b[2J"}, LLM: "m1"}}))
	s.add(proc(audit.Event{Kind: audit.KindFile, File: &audit.File{Proc: "p2", Op: audit.FileWrite, Path: "/x", Size: 3}}))
	s.add(proc(audit.Event{Kind: audit.KindExit, Exit: &audit.Exit{Proc: "p2", Code: 1}}))
	denied := s.add(audit.Event{Kind: audit.KindFlow, Flow: &audit.Flow{State: audit.FlowDeny, Proto: "tcp", DstIP: "10.0.0.1", DstPort: 22, Verdict: audit.Deny, Rule: "default"}})
	s.add(audit.Event{Kind: audit.KindFinding, Finding: &audit.Finding{Rule: "scan", Seq: denied}})
	s.add(audit.Event{Kind: audit.KindVM, VM: &audit.VM{Op: "freeze"}})
	s.add(audit.Event{Kind: audit.KindVM, VM: &audit.VM{Op: "thaw", Reason: "space again"}})
	s.add(audit.Event{Kind: audit.KindOutput, Step: "agent", Output: &audit.Output{Stream: "stdout", Offset: 0, Text: "hello"}})
	s.add(audit.Event{Kind: audit.KindFlow, Flow: &audit.Flow{ID: "f1", State: audit.FlowClose, Proto: "tcp", BytesOut: 77}})
	s.add(audit.Event{Kind: audit.KindSecret, Step: "agent", Secret: &audit.Secret{Op: audit.SecretRevoke}})
	s.add(audit.Event{Kind: audit.KindStep, Step: "agent", Lifecycle: &audit.Lifecycle{Phase: audit.PhaseEnd, Name: "agent", Status: audit.StatusDone, ExitCode: &zero}})
	s.add(audit.Event{Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{Phase: audit.PhaseEnd, Status: audit.StatusDone}})

	tr := traceOf(t, s)
	run, step := one(t, tr, "/run", "run r-trace"), one(t, tr, "/steps", "agent")
	if run.start != second(1) || run.end != second(21) || run.args["tier"] != "qemu-tcg" || step.end != second(20) || step.args["exit code"] != "0" {
		t.Errorf("%+v\n%+v", run, step)
	}
	const procs = "custody r-trace/processes (claimed by the guest)"
	shell, git := one(t, tr, procs+"/sh [1]", "sh"), one(t, tr, procs+"/sh [1]/git [2]", `git '\x1b[2J'`)
	if shell.end != second(21) || shell.args["end"] == nil || git.end != second(12) || git.args["exit code"] != "1" || git.category != "guest" {
		t.Errorf("%+v\n%+v", shell, git)
	}
	if w := one(t, tr, "/git [2]", "write /x"); !w.instant || w.args["size"] != int64(3) {
		t.Errorf("%+v", w)
	}
	name, flow, request := one(t, tr, "/names", "A llm.example"), one(t, tr, "/flows", "tcp llm.example:443"), one(t, tr, "/requests", "POST llm.example/v1")
	call, use := one(t, tr, "/model", "anthropic x"), one(t, tr, "/secrets/model of agent", "use")
	if name.end-name.start != 500e6 || flow.start != second(6) || flow.end != second(18) || flow.args["bytes out"] != int64(77) || flow.args["seq"] != int64(6) {
		t.Errorf("%+v\n%+v", name, flow)
	}
	for what, ok := range map[string]bool{
		"name, flow": linked(name, flow), "flow, request": linked(flow, request), "request, call": linked(request, call),
		"call, program": linked(call, git), "flow, use": linked(flow, use), "denial, finding": linked(one(t, tr, "/flows", "denied: tcp 10.0.0.1:22"), one(t, tr, "", "finding: scan")),
		"name, request": !linked(name, request),
	} {
		if !ok {
			t.Error(what)
		}
	}
	if life := one(t, tr, "/model of agent", "model"); life.start != second(3) || life.end != second(19) || life.instant {
		t.Errorf("%+v", life)
	}
	if freeze := one(t, tr, "/sandbox", "freeze"); freeze.end-freeze.start != 1e9 || freeze.args["reason"] != "space again" {
		t.Errorf("%+v", freeze)
	}
	if c := tr.counts["custody r-trace/output/stdout of agent"]; len(c) != 1 || c[0] != 5 {
		t.Errorf("%v", tr.counts)
	}
	if tr.names[1] != "custody r-trace" {
		t.Errorf("%v", tr.names)
	}
}

// TestAllRecords: every record can be found by its seq, except output, which is counted.
func TestAllRecords(t *testing.T) {
	var rows script
	want := map[uint64]string{}
	for _, e := range sample.All() {
		r := store.Row{Head: store.Head{Run: e.Run, Seq: e.Seq, Time: e.Time}, Body: e.Body}
		if e.Erased {
			r.Body, r.Erased = nil, &[32]byte{}
		}
		rows = append(rows, r)
		if e.Kind != audit.KindOutput {
			want[e.Seq] = e.Name
		}
	}
	for _, s := range traceOf(t, rows).slices {
		for _, key := range []string{"seq", "ended by seq"} {
			if n, ok := s.args[key].(int64); ok {
				delete(want, uint64(n))
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("nowhere: %v", want)
	}
}

// TestHostile: cycles of parents, decreasing times, ends without a beginning.
func TestHostile(t *testing.T) {
	var s script
	guest := func(at int, x audit.Exec) {
		s.add(audit.Event{Kind: audit.KindExec, Observer: audit.Guest, Time: began.Add(time.Duration(at) * time.Second), Exec: &x})
	}
	guest(9, audit.Exec{Proc: "a", Parent: "a"})
	guest(8, audit.Exec{Proc: "b", Parent: "c"})
	guest(7, audit.Exec{Proc: "c", Parent: "b"})
	guest(6, audit.Exec{Proc: "c", Parent: "b"})
	guest(5, audit.Exec{Proc: "", Parent: ""})
	for i := range 200 {
		guest(10+i, audit.Exec{Proc: fmt.Sprint("deep", i), Parent: fmt.Sprint("deep", i-1)})
	}
	s.add(audit.Event{Kind: audit.KindFlow, Flow: &audit.Flow{ID: "f9", State: audit.FlowClose, DurationNS: -5}})
	s.add(audit.Event{Kind: audit.KindFinding, Finding: &audit.Finding{Rule: "x", Seq: 99999}})
	s.add(audit.Event{Kind: audit.KindExit, Observer: audit.Guest, Exit: &audit.Exit{Proc: "never", DurationNS: 1 << 62}})
	s.add(audit.Event{Kind: "dream"})
	tr := traceOf(t, s)
	deepest := 0
	for id := range tr.names {
		deepest = max(deepest, strings.Count(tr.path(id), "/"))
	}
	if deepest > 30 {
		t.Errorf("%d levels", deepest)
	}
	broken := errors.New("the store is away")
	err := perfetto.Write(&bytes.Buffer{}, store.Run{}, func(yield func(store.Row, error) bool) { yield(store.Row{}, broken) })
	if !errors.Is(err, broken) {
		t.Error(err)
	}
}

// TestDeterministic: the same rows give the same bytes.
func TestDeterministic(t *testing.T) {
	var rows script
	for _, e := range sample.All() {
		rows = append(rows, store.Row{Head: store.Head{Run: e.Run, Seq: e.Seq, Time: e.Time}, Body: e.Body})
	}
	var a, b bytes.Buffer
	for _, w := range []*bytes.Buffer{&a, &b} {
		if err := perfetto.Write(w, store.Run{ID: "r"}, rows.rows()); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("two traces of one run differ")
	}
}

// FuzzWrite: any records give a trace that a reader accepts.
func FuzzWrite(f *testing.F) {
	for _, s := range sample.All() {
		f.Add([]byte(s.Body), []byte(s.Body))
	}
	f.Add([]byte(`{"kind":"secret","step":"\u0000","secret":{"op":"mint"}}`), []byte(`{"kind":"secret","secret":{"op":"revoke"}}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var rows script
		for i, body := range [][]byte{a, b, a, b} {
			h, _ := store.ParseHead(body)
			h.Seq = uint64(i)
			rows = append(rows, store.Row{Head: h, Body: body})
		}
		for _, s := range traceOf(t, rows).slices {
			if !utf8.ValidString(s.name) || strings.ContainsAny(s.name, "\x00\x1b\n") {
				t.Fatalf("%q", s.name)
			}
		}
	})
}

// BenchmarkWrite writes a run with 100,000 records.
func BenchmarkWrite(b *testing.B) {
	var rows script
	all := sample.All()
	for i := range 100_000 {
		e := all[i%len(all)]
		body := bytes.Replace(e.Body, []byte("2026-11-20T22:5"), fmt.Appendf(nil, "2026-11-20T%02d:%d", i*20/100_000, i/80%6), 1)
		rows = append(rows, store.Row{Head: store.Head{Run: e.Run, Seq: uint64(i + 1), Time: e.Time}, Body: body})
	}
	var out bytes.Buffer
	b.ReportAllocs()
	for b.Loop() {
		out.Reset()
		if err := perfetto.Write(&out, store.Run{ID: "r"}, rows.rows()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(out.Len())/1e6, "MB")
}

// TestEveryKind: a record of each kind of the table has a specific form in the trace, and not that of an unknown kind.
func TestEveryKind(t *testing.T) {
	for kind, full := range sample.Full(true) {
		body, err := json.Marshal(full.Record)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range traceOf(t, script{{Head: store.Head{Run: full.Run, Seq: full.Seq, Time: full.Time}, Body: body}}).slices {
			if strings.HasPrefix(s.name, "record of kind ") {
				t.Errorf("kind %s is in the trace as %q", kind, s.name)
			}
		}
	}
}
