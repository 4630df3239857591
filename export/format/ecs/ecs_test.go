package ecs

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/internal/sample"
)

//go:embed testdata/fields.txt
var fieldList string

func fields() map[string]string {
	m := map[string]string{}
	for _, line := range strings.Split(fieldList, "\n") {
		if f := strings.Fields(line); len(f) == 2 && f[0] != "#" {
			m[f[0]] = f[1]
		}
	}
	return m
}

// The types that ECS allows with each category (ECS categorisation fields).
var expected = map[string][]string{
	"process":             {"access", "change", "end", "info", "start"},
	"file":                {"access", "change", "creation", "deletion", "info"},
	"network":             {"access", "allowed", "connection", "denied", "end", "info", "protocol", "start"},
	"web":                 {"access", "error", "info"},
	"configuration":       {"access", "change", "creation", "deletion", "info"},
	"iam":                 {"admin", "change", "creation", "deletion", "group", "info", "user"},
	"host":                {"access", "change", "end", "info", "start"},
	"intrusion_detection": {"allowed", "denied", "info"},
	"api":                 {"access", "admin", "allowed", "change", "creation", "deletion", "denied", "end", "info", "start", "user"},
	"authentication":      {"end", "info", "start"},
	"session":             {"end", "info", "start"},
}

// check returns the violations in an event.
func check(b []byte) (errs []string) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var e map[string]any
	if err := dec.Decode(&e); err != nil || dec.More() {
		return []string{fmt.Sprintf("no JSON object: %v", err)}
	}
	known := fields()
	var walk func(path string, v any)
	walk = func(path string, v any) {
		if path == "custody" {
			return
		}
		if o, ok := v.(map[string]any); ok {
			for k, v := range o {
				walk(strings.TrimPrefix(path+"."+k, "."), v)
			}
			return
		}
		list, isList := v.([]any)
		if isList && len(list) > 0 {
			if _, ok := list[0].(map[string]any); ok { // dns.answers
				for _, o := range list {
					walk(path, o)
				}
				return
			}
		}
		typ, array := strings.CutSuffix(known[path], "[]")
		if typ == "" || array != isList {
			errs = append(errs, path+" is no such field of ECS")
			return
		}
		if !isList {
			list = []any{v}
		}
		for _, v := range list {
			if !fits(typ, v) {
				errs = append(errs, fmt.Sprintf("%s is no %s: %v", path, typ, v))
			}
		}
	}
	walk("", e)
	return append(errs, categories(e)...)
}

func fits(typ string, v any) bool {
	switch typ {
	case "long":
		n, ok := v.(json.Number)
		_, err := n.Int64()
		return ok && err == nil
	case "ip":
		s, _ := v.(string)
		a, err := netip.ParseAddr(s)
		return err == nil && a.Zone() == ""
	case "date":
		s, _ := v.(string)
		_, err := time.Parse(time.RFC3339Nano, s)
		return err == nil
	}
	_, ok := v.(string)
	return ok
}

func categories(e map[string]any) (errs []string) {
	ev, _ := e["event"].(map[string]any)
	types, _ := ev["type"].([]any)
	cats, _ := ev["category"].([]any)
	var ok []string
	for _, c := range cats {
		if expected[c.(string)] == nil {
			errs = append(errs, fmt.Sprintf("%v is no category", c))
		}
		ok = append(ok, expected[c.(string)]...)
	}
	for _, t := range types {
		if len(cats) > 0 && !slices.Contains(ok, t.(string)) {
			errs = append(errs, fmt.Sprintf("type %v does not go with %v", t, cats))
		}
	}
	if k := ev["kind"]; k != "event" && k != "alert" {
		errs = append(errs, fmt.Sprintf("kind %v", k))
	}
	if len(types) == 0 || ev["id"] == "" || ev["action"] == "" {
		errs = append(errs, "no event.type, event.id or event.action")
	}
	return errs
}

func write(t testing.TB, e export.Event) []byte {
	t.Helper()
	b, err := New().Append(nil, e)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Every kind, operation and state has fields of ECS with values of their types, and no others but custody.*.
func TestFields(t *testing.T) {
	used := map[string]bool{}
	for _, s := range append(sample.All(), sample.Marked()...) {
		b := write(t, s.Event)
		for _, err := range check(b) {
			t.Errorf("%s: %s\n%s", s.Name, err, b)
		}
		paths(used, "", b)
	}
	for f := range fields() {
		if !used[f] {
			t.Errorf("no sample has %s", f)
		}
	}
}

func paths(used map[string]bool, path string, b []byte) {
	var o map[string]json.RawMessage
	if json.Unmarshal(b, &o) != nil {
		used[path] = true
		var list []json.RawMessage
		if json.Unmarshal(b, &list) == nil {
			for _, e := range list {
				paths(used, path, e)
			}
		}
		return
	}
	for k, v := range o {
		paths(used, strings.TrimPrefix(path+"."+k, "."), v)
	}
}

// Every value of every field of every kind is in the event.
func TestNothingIsDropped(t *testing.T) {
	for _, fit := range []bool{true, false} {
		for kind, e := range sample.Full(fit) {
			text := string(write(t, e.Event))
			for _, l := range e.Leaves {
				if !slices.ContainsFunc(l.Forms, func(s string) bool { return strings.Contains(text, s) }) {
					t.Errorf("%s: %s, %v, is nowhere in %s", kind, l.Field, l.Forms, text)
				}
			}
		}
	}
}

func TestChecksFind(t *testing.T) {
	b := write(t, sample.Named("flow/sni"))
	for _, c := range [][2]string{
		{`"ip":"198.18.0.2"`, `"ip":"x"`},
		{`"port":443`, `"port":"443"`},
		{`"type":["connection","denied"]`, `"type":["creation"]`},
		{`"transport"`, `"transports"`},
		{`"kind":"event"`, `"kind":"alarm"`},
	} {
		broken := strings.Replace(string(b), c[0], c[1], 1)
		if broken == string(b) {
			t.Errorf("no %s in %s", c[0], b)
		}
		if len(check([]byte(broken))) == 0 {
			t.Errorf("%s was not found", c[1])
		}
	}
}

func TestBounds(t *testing.T) {
	e := sample.Named("exec/plain")
	x := *e.Record.Exec
	x.Argv = slices.Repeat([]audit.Text{audit.Text(strings.Repeat("\xff", 100_000))}, 1000)
	e.Record.Exec = &x
	b := write(t, e)
	if len(b) > 4<<20 {
		t.Errorf("%d bytes", len(b))
	}
	if !bytes.Contains(b, []byte(`"truncated":{"process.args":100000`)) {
		t.Errorf("%s", b[len(b)-3000:])
	}
	for _, err := range check(b) {
		t.Error(err)
	}
}

// FuzzAppend: every record that decodes is an event whose fields have values of their types.
func FuzzAppend(f *testing.F) {
	for _, s := range sample.All() {
		f.Add([]byte(s.Body), []byte(s.Name))
	}
	f.Fuzz(func(t *testing.T, body, other []byte) {
		e := export.Event{Body: body, Tenant: string(other), Host: string(other)}
		if json.Unmarshal(body, &e.Record) != nil || e.Time.Year() > 9999 || e.Time.Year() < 0 {
			return
		}
		e.Exec = &audit.Exec{Proc: "p", Parent: "pp", Exe: audit.Text(other), Argv: []audit.Text{audit.Text(other)}}
		e.Start = &audit.Lifecycle{Host: string(other), Version: string(other), Tier: string(other)}
		b := write(t, e)
		if errs := check(b); len(errs) > 0 {
			t.Fatalf("%v\n%s", errs, b)
		}
		if !utf8.Valid(b) || bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' }) {
			t.Fatalf("%q", b)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	f := New()
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
