package csv_test

import (
	"bytes"
	stdcsv "encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export/format/csv"
	"github.com/custody-project/custody/export/internal/sample"
	"github.com/custody-project/custody/store"
)

func rowsOf(bodies ...[]byte) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		for i, b := range bodies {
			h, err := store.ParseHead(b)
			if err != nil {
				h = store.Head{Run: "r-x", Seq: uint64(i + 1), Time: time.Unix(0, 0)}
			}
			if !yield(store.Row{Head: h, Body: b}, nil) {
				return
			}
		}
	}
}

// table writes rows and reads them with the standard library.
func table(t testing.TB, rows iter.Seq2[store.Row, error]) []map[string]string {
	t.Helper()
	var b bytes.Buffer
	if err := csv.Write(&b, store.Run{ID: sample.Run}, rows); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	all, err := stdcsv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != len(all) {
		t.Errorf("%d records on %d lines", len(all), len(lines))
	}
	var out []map[string]string
	for _, cells := range all[1:] {
		m := map[string]string{}
		for i, name := range csv.Columns() {
			m[name] = cells[i]
		}
		out = append(out, m)
	}
	return out
}

// TestKinds: every kind has a line with its subject.
func TestKinds(t *testing.T) {
	var bodies [][]byte
	var names []string
	for _, s := range sample.All() {
		if !s.Erased {
			bodies, names = append(bodies, s.Body), append(names, s.Name)
		}
	}
	got := map[string]map[string]string{}
	for i, m := range table(t, rowsOf(bodies...)) {
		got[names[i]] = m
		if m["run"] != sample.Run || m["seq"] == "" || m["time"] == "" || m["observer"] == "" || m["kind"] == "" {
			t.Errorf("%s: %v", names[i], m)
		}
	}
	for name, want := range map[string]map[string]string{
		"run/start":      {"kind": "run", "action": "start", "observer": "host"},
		"step/exit3":     {"action": "end", "exit_code": "3", "detail": "status done", "duration_ns": "239385794", "step": "agent"},
		"exec/plain":     {"subject": "/usr/bin/git", "detail": "git commit -m 'it'\\\\''s done'", "pid": "116", "observer": "guest"},
		"exec/bytes":     {"subject": `/tmp/\xff\nk\xfe`},
		"exit/signal":    {"exit_code": "137", "detail": "signal 9"},
		"file/rename":    {"action": "rename", "subject": "/workspace/a", "detail": "to /workspace/b size 4"},
		"flow/deny":      {"action": "deny", "verdict": "deny", "subject": "tcp 2600:dead:66::66:443", "port": "443", "rule": "default", "detail": "from fdc5:7a1c:19d2::2 17 like it"},
		"dns/allow":      {"verdict": "allow", "host": "allowed.site.example", "detail": "198.18.1.0"},
		"http/get":       {"action": "GET", "subject": "api.site.example/v1/x?q=1&b=2", "secret": "model", "bytes_in": "55"},
		"llm/call":       {"subject": "claude-sonnet-4-5", "action": "anthropic messages"},
		"secret/use":     {"action": "use", "secret": "model", "host": "llm.site.example"},
		"gap/wal":        {"action": "wal", "detail": "lost 869 events, 0 bytes; seqs 138 to 1006"},
		"finding/revoke": {"action": "revoke", "subject": "secret-in-output", "reason": "seq 31 shows it"},
		"access/nobody":  {"action": "login", "verdict": "deny", "address": "203.0.113.9"},
	} {
		for column, value := range want {
			if got[name][column] != value {
				t.Errorf("%s: %s is %q, want %q", name, column, got[name][column], value)
			}
		}
	}
}

// TestFormulas: no text of a guest is computed.
func TestFormulas(t *testing.T) {
	for text, want := range map[string]string{
		"=cmd|' /C calc'!A0": "'=cmd|' /C calc'!A0",
		"+1":                 "'+1",
		"-rf":                "'-rf",
		"@SUM(1)":            "'@SUM(1)",
		"\t=1":               `\t=1`,
		"\r=1":               `\r=1`,
		" =1":                "' =1",
		"\u00a0=1":           `\u00a0=1`,
		"＝1":                 "'＝1",
		"'=1":                "''=1",
		"\"=1":               "'\"=1",
		"a;=1;b":             "a;'=1;b",
		"a;\t@x":             `a;\t@x`,
		"plain":              "plain",
		"a=1":                "a=1",
		"1,2":                "1,2",
		"\x1b[2J\u202e":      `\x1b[2J\u202e`,
		"\xff":               `\xff`,
	} {
		body, err := json.Marshal(audit.Record{V: 1, Run: "r-x", Seq: 1, Event: audit.Event{
			Time: sample.Time(), Observer: audit.Guest, Kind: audit.KindFile, File: &audit.File{Op: audit.FileWrite, Path: audit.Text(text)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if got := table(t, rowsOf(body))[0]["subject"]; got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// TestOdd: erased and invalid records have a line, and long text is cut.
func TestOdd(t *testing.T) {
	leaf := [32]byte{0xab}
	rows := func(yield func(store.Row, error) bool) {
		_ = yield(store.Row{Head: store.Head{Run: "r-x", Seq: 1, Time: sample.Time()}, Erased: &leaf}, nil) &&
			yield(store.Row{Head: store.Head{Run: "r-x", Seq: 2}, Body: []byte("{")}, nil) &&
			yield(store.Row{Head: store.Head{Run: "r-x", Seq: 3}, Body: []byte(`{"v":2,"kind":"dream","dream":{"x":"=1"}}`)}, nil) &&
			yield(store.Row{Head: store.Head{Run: "r-x", Seq: 4}, Body: fmt.Appendf(nil, `{"kind":"output","output":{"text":%q}}`, strings.Repeat("x", 1<<20))}, nil)
	}
	got := table(t, rows)
	if got[0]["action"] != "erased" || !strings.Contains(got[0]["detail"], "ab00") || got[1]["action"] != "unreadable" ||
		got[2]["kind"] != "dream" || !strings.Contains(got[2]["detail"], `"x":"=1"`) {
		t.Errorf("%v", got[:3])
	}
	if d := got[3]["detail"]; len(d) > 32767 || !strings.HasSuffix(d, "x... [1048576 bytes]") {
		t.Errorf("%d bytes", len(d))
	}
	broken := errors.New("the store is away")
	err := csv.Write(&bytes.Buffer{}, store.Run{}, func(yield func(store.Row, error) bool) { yield(store.Row{}, broken) })
	if !errors.Is(err, broken) {
		t.Error(err)
	}
}

// FuzzWrite: any record is one line of plain characters, and no cell of text is a formula.
func FuzzWrite(f *testing.F) {
	for _, s := range sample.All() {
		f.Add([]byte(s.Body))
	}
	f.Add([]byte(`{"kind":"exec","exec":{"exe":"=1","argv":["+1;=2"]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var b bytes.Buffer
		if err := csv.Write(&b, store.Run{ID: "=r"}, rowsOf(body)); err != nil {
			t.Fatal(err)
		}
		if !utf8.Valid(b.Bytes()) || bytes.ContainsFunc(b.Bytes(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) || bytes.Count(b.Bytes(), []byte("\n")) != 2 {
			t.Fatalf("%q", b.Bytes())
		}
		all, err := stdcsv.NewReader(&b).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		for i, cell := range all[1] {
			switch csv.Columns()[i] {
			case "pid", "port", "exit_code", "duration_ns": // numbers, which may be negative
				continue
			}
			for part := range strings.SplitSeq(cell, ";") {
				if part = strings.TrimLeft(part, " \""); part != "" && strings.ContainsAny(part[:1], "=+-@") {
					t.Fatalf("%s: %q", csv.Columns()[i], cell)
				}
			}
		}
	})
}

// BenchmarkWrite writes one record at a time.
func BenchmarkWrite(b *testing.B) {
	var bodies [][]byte
	for _, s := range sample.All() {
		if !s.Erased {
			bodies = append(bodies, s.Body)
		}
	}
	rows, records := rowsOf(bodies...), 0
	var out bytes.Buffer
	b.ReportAllocs()
	for b.Loop() {
		out.Reset()
		if err := csv.Write(&out, store.Run{ID: sample.Run}, rows); err != nil {
			b.Fatal(err)
		}
		records += len(bodies)
	}
	b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "records/s")
}

// TestEveryKind: a record of each kind of the table has specific cells, and not only its JSON.
func TestEveryKind(t *testing.T) {
	for kind, full := range sample.Full(true) {
		body, err := json.Marshal(full.Record)
		if err != nil {
			t.Fatal(err)
		}
		if got := table(t, rowsOf(body))[0]; strings.HasPrefix(got["detail"], `{"v":1`) {
			t.Errorf("kind %s stands as JSON in detail", kind)
		}
	}
}
