package ocsf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/internal/sample"
)

func TestNew(t *testing.T) {
	for _, v := range append(Versions(), "", "1.8") {
		f, err := New(v)
		if err != nil || f.Name() != "ocsf" {
			t.Errorf("%q: %v", v, err)
		}
	}
	for _, v := range []string{"1.0.0", "1.2.0", "2.0.0", "1.10.0", "latest", "1.8.0 "} {
		if _, err := New(v); err == nil || !strings.Contains(err.Error(), "1.9.0") {
			t.Errorf("%q: %v does not list what is known", v, err)
		}
	}
}

// Every value of every field of every kind is in the event, in every version.
func TestNothingIsDropped(t *testing.T) {
	for _, fit := range []bool{true, false} {
		for kind, e := range sample.Full(fit) {
			for _, v := range Versions() {
				text := string(write(t, v, e.Event))
				for _, l := range e.Leaves {
					if !slices.ContainsFunc(l.Forms, func(s string) bool { return strings.Contains(text, s) }) {
						t.Errorf("%s %s: %s, %v, is nowhere in %s", v, kind, l.Field, l.Forms, text)
					}
				}
			}
		}
	}
}

// The checks of lint_test.go detect the faults that they are for.
func TestChecksFind(t *testing.T) {
	r := readRules(t)
	all := map[string]sample.Sample{}
	for _, s := range sample.All() {
		all[s.Name] = s
	}
	for _, c := range []struct{ name, version, old, new, want string }{
		{"flow/deny", "1.8.0", `"type_uid":400105`, `"type_uid":400106`, "type_uid"},
		{"flow/deny", "1.8.0", `"activity_name":"Refuse"`, `"activity_name":"Refused"`, "activity_name"},
		{"flow/deny", "1.8.0", `"action":"Denied"`, `"action":"Deny"`, "caption"},
		{"flow/deny", "1.8.0", `"disposition_id":2`, `"disposition_id":77`, "no value"},
		{"flow/deny", "1.8.0", `"host","security_control"`, `"host"`, "not declared"},
		{"flow/deny", "1.8.0", `"severity":"Medium"`, `"severity":3`, "no str"},
		{"flow/deny", "1.8.0", `"port":443`, `"port":70000`, "no port"},
		{"flow/deny", "1.8.0", `"ip":"2600:dead:66::66"`, `"ip":"x"`, "no ip"},
		{"exec/plain", "1.8.0", `"actor":{`, `"author":{`, "actor is required"},
		{"exec/plain", "1.8.0", `"pid":116,"uid":"897ef210a4a8969bd99c8290de82b14e",`, ``, "none of"},
		{"exec/plain", "1.3.0", `"cmd_line"`, `"working_directory"`, "no such attribute in 1.3.0"},
		{"gap/wal", "1.1.0", `"class_uid":0`, `"class_uid":1008`, "not in 1.1.0"},
		{"llm/call", "1.8.0", `,"ai_operation"`, ``, "not declared"},
		{"http/patch", "1.5.0", `"activity_id":99`, `"activity_id":9`, "no value"},
	} {
		b := write(t, c.version, all[c.name].Event)
		broken := bytes.Replace(b, []byte(c.old), []byte(c.new), 1)
		if bytes.Equal(b, broken) {
			t.Errorf("%s has no %s: %s", c.name, c.old, b)
		}
		if errs := fmt.Sprint(check(r, c.version, broken)); !strings.Contains(errs, c.want) {
			t.Errorf("%s with %s: found %s", c.name, c.new, errs)
		}
	}
}

// Text of a guest is valid UTF-8 on one line, and its exact bytes are included.
func TestBytes(t *testing.T) {
	e := sample.Named("exec/bytes")
	b := write(t, "", e)
	if e.Record.Exec.Argv[1] != "a\nCEF:0|b\u2028c\x1b[2J" {
		t.Fatal("not the sample that is meant")
	}
	if !utf8.Valid(b) || bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0x2028 }) {
		t.Errorf("%q", b)
	}
	for _, want := range []string{`\\xff\u000ak\\xfe`, `'\\x80\\x81\\x82'`, `"process.file.path":"L3RtcC//Cmv+"`, `"process.cmd_line":"gIGC"`} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("no %s in %s", want, b)
		}
	}
}

// An event is bounded, however long the guest's texts are, and lists cut values.
func TestBounds(t *testing.T) {
	e := sample.Named("exec/plain")
	x := *e.Record.Exec
	x.Argv = slices.Repeat([]audit.Text{audit.Text(strings.Repeat("\xff", 100_000))}, 1000)
	e.Record.Exec = &x
	b := write(t, "", e)
	if len(b) > 2<<20 {
		t.Errorf("%d bytes", len(b))
	}
	var d struct {
		Unmapped struct{ Truncated map[string]int }
		Metadata struct {
			Cut bool `json:"is_truncated"`
		}
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	if d.Unmapped.Truncated["process.cmd_line"] != 100_000 || !d.Metadata.Cut {
		t.Errorf("%+v", d)
	}
	for _, err := range check(readRules(t), "", b) {
		t.Error(err)
	}
}

// A record of a newer kind is exported too.
func TestForeignKind(t *testing.T) {
	e := export.Event{Body: []byte(`{"v":2,"kind":"dream","dream":{"who":"x"}}`)}
	e.Run, e.Seq, e.Kind, e.Observer = "r-1", 7, "dream", audit.Host
	r := readRules(t)
	for _, v := range Versions() {
		b := write(t, v, e)
		if errs := check(r, v, b); len(errs) > 0 || !bytes.Contains(b, []byte(`\"who\":\"x\"`)) {
			t.Errorf("%v\n%s", errs, b)
		}
	}
}

// Append does not change the existing bytes of dst.
func TestAppend(t *testing.T) {
	f, _ := New("")
	e := sample.Named("run/start")
	got, _ := f.Append([]byte("x{"), e)
	want := append([]byte("x{"), write(t, "", e)...)
	if !bytes.Equal(got, want) {
		t.Errorf("%s", got)
	}
}

// FuzzAppend: every record that decodes is an event that is valid in every version, and in the
// default version conforms to the published schemas.
func FuzzAppend(f *testing.F) {
	for _, s := range sample.All() {
		f.Add([]byte(s.Body), []byte(s.Name))
	}
	r := readRules(f)
	var byClass map[int]*jsonschema.Schema
	if _, ok := findSchemas(); ok {
		byClass = schemas(f)
	}
	f.Fuzz(func(t *testing.T, body, other []byte) {
		e := export.Event{Body: body, Tenant: string(other), Host: string(other)}
		if json.Unmarshal(body, &e.Record) != nil || e.Time.Year() > 9999 {
			return
		}
		e.Exec = &audit.Exec{Proc: "p", Parent: "pp", Exe: audit.Text(other), Argv: []audit.Text{audit.Text(other)}}
		e.Start = &audit.Lifecycle{Host: string(other), Version: string(other), Tier: string(other)}
		for _, v := range Versions() {
			b := write(t, v, e)
			if errs := check(r, v, b); len(errs) > 0 {
				t.Fatalf("%s: %v\n%s", v, errs, b)
			}
			if !utf8.Valid(b) || bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' }) {
				t.Fatalf("%q", b)
			}
		}
		if byClass != nil {
			valid(t, byClass, write(t, "", e))
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	f, _ := New("")
	all := sample.All()
	var buf []byte
	i, n := 0, 0
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = f.Append(buf[:0], all[i%len(all)].Event)
		i, n = i+1, n+len(buf)
	}
	b.SetBytes(int64(n / i))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
