package sample_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/format/cef"
	"github.com/custody-project/custody/export/format/ecs"
	"github.com/custody-project/custody/export/format/ocsf"
	"github.com/custody-project/custody/export/internal/sample"
)

const page = "../../../docs/mapping.md"

var update = flag.Bool("update", false, "write the tables of docs/mapping.md")

// TestPage compares the tables of docs/mapping.md with the output of the formats. `go test -update` writes them.
func TestPage(t *testing.T) {
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	tables := map[string]string{"ocsf-states": ocsfStates(t), "ecs-states": ecsStates(t), "envelope": envelope(t)}
	for _, k := range sample.Kinds() {
		if k != audit.KindStep { // like run
			tables[string(k)] = fieldTable(t, k)
		}
	}
	for name, want := range tables {
		begin, end := "<!-- table "+name+" -->\n", "<!-- end "+name+" -->"
		_, rest, ok := strings.Cut(text, begin)
		got, _, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Errorf("mapping.md has no table %s", name)
			continue
		}
		if got != want {
			text = strings.Replace(text, begin+got+end, begin+want+end, 1)
			if !*update {
				t.Errorf("mapping.md, table %s: go test ./export/internal/sample -update writes it as\n%s", name, want)
			}
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKinds: there is a sample of each kind of the table, and each format writes it in a specific form.
func TestKinds(t *testing.T) {
	for kind, full := range sample.Full(true) {
		if !slices.ContainsFunc(sample.All(), func(s sample.Sample) bool { return s.Kind == kind }) {
			t.Errorf("no sample of %s", kind)
		}
		for form, foreign := range map[export.Format]string{newest(t): `"message":"record of kind `, ecs.New(): `"action":"record"`, cef.New(): "|record|Record|"} {
			if got := write(t, form, full.Event); bytes.Contains(got, []byte(foreign)) {
				t.Errorf("%s writes the kind %s as one that it does not know: %s", form.Name(), kind, got)
			}
			unknown := full.Event
			unknown.Kind = "newer"
			if got := write(t, form, unknown); !bytes.Contains(got, []byte(foreign)) {
				t.Errorf("%s writes an unknown kind as %s", form.Name(), got)
			}
		}
	}
}

func write(t *testing.T, f export.Format, e export.Event) []byte {
	t.Helper()
	b, err := f.Append(nil, e)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newest(t *testing.T) export.Format {
	f, err := ocsf.New("")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// state returns what distinguishes an event from others of its kind.
func state(e export.Event) string {
	switch {
	case e.Erased:
		return ""
	case e.Lifecycle != nil && e.Lifecycle.Phase == audit.PhaseStart:
		return "start"
	case e.Lifecycle != nil && e.Lifecycle.ExitCode != nil && *e.Lifecycle.ExitCode != 0 && e.Lifecycle.Status == audit.StatusDone:
		return "end, done, exit code not 0"
	case e.Lifecycle != nil:
		return "end, " + string(e.Lifecycle.Status)
	case e.File != nil:
		return string(e.File.Op)
	case e.Flow != nil && e.Flow.State == audit.FlowAttempt:
		return "attempt, errno " + map[int]string{0: "0", 115: "115"}[e.Flow.Errno] + map[bool]string{true: "other"}[e.Flow.Errno != 0 && e.Flow.Errno != 115]
	case e.Flow != nil:
		return string(e.Flow.State)
	case e.DNS != nil && e.DNS.Verdict == audit.Allow && e.DNS.RCode != "NOERROR":
		return "allow, not NOERROR"
	case e.DNS != nil:
		return string(e.DNS.Verdict)
	case e.HTTP != nil:
		return string(e.HTTP.Method)
	case e.Probe != nil && e.Probe.Blocked:
		return "blocked"
	case e.Probe != nil && strings.HasPrefix(e.Probe.Name, "control/"):
		return "control, not blocked"
	case e.Probe != nil:
		return "not blocked"
	case e.VM != nil:
		return e.VM.Op
	case e.Secret != nil:
		return string(e.Secret.Op)
	case e.Exit != nil && e.Exit.Synthetic:
		return "synthetic"
	case e.Access != nil && e.Access.Verdict == audit.Deny:
		return e.Access.Action + ", deny"
	case e.Access != nil && e.Access.Action == "manage":
		method, _, _ := strings.Cut(e.Access.Route, " ")
		return "manage, " + method
	case e.Access != nil:
		return e.Access.Action
	case e.Finding != nil && e.Finding.Action != "":
		return "action " + e.Finding.Action
	}
	return ""
}

// rows makes a table of the samples: those of one kind and state are one row, with all their fields.
func rows(t *testing.T, head []string, cells func(sample.Sample) []string) string {
	type row struct {
		kind, state string
		cells       [][]string
	}
	var all []*row
	for _, s := range sample.All() {
		kind, st := string(s.Kind), state(s.Event)
		if s.Erased {
			kind = "erased record"
		}
		i := slices.IndexFunc(all, func(r *row) bool { return r.kind == kind && r.state == st })
		if i < 0 {
			all, i = append(all, &row{kind: kind, state: st, cells: make([][]string, len(head)-2)}), len(all)
		}
		for n, c := range cells(s) {
			if !slices.Contains(all[i].cells[n], c) {
				all[i].cells[n] = append(all[i].cells[n], c)
			}
		}
	}
	var b strings.Builder
	table(&b, head)
	for _, r := range all {
		kind := "`" + r.kind + "`"
		if r.kind == "erased record" {
			kind = r.kind
		}
		line := []string{kind, r.state}
		for _, c := range r.cells {
			line = append(line, strings.Join(c, " or "))
		}
		b.WriteString(strings.ReplaceAll("| "+strings.Join(line, " | ")+" |", "|  |", "| |") + "\n")
	}
	return b.String()
}

func table(b *strings.Builder, head []string) {
	b.WriteString("| " + strings.Join(head, " | ") + " |\n|" + strings.Repeat(" --- |", len(head)) + "\n")
}

func ocsfStates(t *testing.T) string {
	f := newest(t)
	return rows(t, []string{"kind", "state", "class", "activity", "status", "action, disposition", "severity"}, func(s sample.Sample) []string {
		var o struct {
			Class      int    `json:"class_uid"`
			Name       string `json:"class_name"`
			Activity   int    `json:"activity_id"`
			ActName    string `json:"activity_name"`
			Status     string
			Severity   string
			SeverityID int `json:"severity_id"`
			Action     string
			ActionID   int `json:"action_id"`
			Disp       string
			Disposit   string `json:"disposition"`
			DispID     int    `json:"disposition_id"`
		}
		if err := json.Unmarshal(write(t, f, s.Event), &o); err != nil {
			t.Fatal(err)
		}
		action := ""
		if o.ActionID != 0 {
			action = fmt.Sprintf("%d %s, %d %s", o.ActionID, o.Action, o.DispID, o.Disposit)
		}
		return []string{fmt.Sprintf("%d %s", o.Class, o.Name), fmt.Sprintf("%d %s", o.Activity, o.ActName), o.Status, action,
			fmt.Sprintf("%d %s", o.SeverityID, o.Severity)}
	})
}

func ecsStates(t *testing.T) string {
	head := []string{"kind", "state", "`event.kind`", "`event.category`", "`event.type`", "`event.action`", "`event.outcome`", "CEF signature", "CEF name", "CEF severity"}
	return rows(t, head, func(s sample.Sample) []string {
		var e struct {
			Event struct {
				Kind, Action, Outcome string
				Category, Type        []string
			}
		}
		if err := json.Unmarshal(write(t, ecs.New(), s.Event), &e); err != nil {
			t.Fatal(err)
		}
		h := strings.Split(string(write(t, cef.New(), s.Event)), "|")
		return []string{e.Event.Kind, strings.Join(e.Event.Category, ", "), strings.Join(e.Event.Type, ", "), e.Event.Action, e.Event.Outcome, h[4], h[5], h[6]}
	})
}

// values are all values of an event by the path to them, without positions in lists.
type values map[string][]string

func jsonValues(t *testing.T, b []byte) values {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var doc any
	if err := dec.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	v := values{}
	var walk func(string, any)
	walk = func(path string, x any) {
		switch x := x.(type) {
		case map[string]any:
			for k, e := range x {
				walk(strings.TrimPrefix(path+"."+k, "."), e)
			}
		case []any:
			for _, e := range x {
				walk(path, e)
			}
		default:
			v[path] = append(v[path], fmt.Sprint(x))
		}
	}
	walk("", doc)
	return v
}

// cefValues parses a line without escapes.
func cefValues(b []byte) values {
	v := values{}
	h := strings.SplitN(string(b), "|", 8)
	labels := map[string]string{}
	key := ""
	for _, word := range strings.Fields(h[7]) {
		if k, value, ok := strings.Cut(word, "="); ok {
			key = k
			v[key] = []string{value}
			continue
		}
		v[key][0] += " " + word
	}
	for k, list := range v {
		if base, ok := strings.CutSuffix(k, "Label"); ok {
			labels[base] = list[0]
			delete(v, k)
		}
	}
	for k, label := range labels {
		v[k+" ("+label+")"] = v[k]
		delete(v, k)
	}
	v["header"] = h[:7]
	return v
}

// echo are fields that repeat a value of another: they count only if there is no other.
func echo(path string) bool {
	for _, p := range []string{"message", "observables.", "related.", "finding_info.title", "header", "type_name"} {
		if path == p || strings.HasSuffix(p, ".") && strings.HasPrefix(path, p) {
			return true
		}
	}
	return false
}

// places returns the fields with a value, in any of the forms of an event.
func places(l sample.Leaf, forms ...values) string {
	var found, echoes []string
	for _, v := range forms {
		f, e := v.places(l)
		found, echoes = append(found, f...), append(echoes, e...)
	}
	if len(found) == 0 {
		found = echoes
	}
	return cell(found)
}

func (v values) places(l sample.Leaf) (found, echoes []string) {
	for path, list := range v {
		if !slices.ContainsFunc(list, func(s string) bool { return same(s, l.Forms) }) {
			continue
		}
		path = strings.NewReplacer("activity_name", "activity_id", "header", "signature").Replace(path)
		if echo(path) {
			echoes = append(echoes, path)
		} else {
			found = append(found, path)
		}
	}
	return found, echoes
}

// same reports whether s has the value: as a whole for numbers, within it for words.
func same(s string, forms []string) bool {
	for _, f := range forms {
		_, err := strconv.ParseInt(f, 10, 64)
		if s == f || err != nil && strings.Contains(s, f) || strings.HasSuffix(s, ":"+f) { // the last is an event's id
			return true
		}
	}
	return false
}

func cell(paths []string) string {
	slices.Sort(paths)
	for i, p := range paths {
		name, label, ok := strings.Cut(p, " (")
		paths[i] = "`" + name + "`"
		if ok {
			paths[i] += " (" + label
		}
	}
	return strings.Join(slices.Compact(paths), ", ")
}

// flagPlaces returns the fields in which two events differ.
func flagPlaces(with, without values) string {
	var found []string
	for path, list := range with {
		if !slices.Equal(list, without[path]) && !echo(path) && !strings.HasPrefix(path, "severity") && !strings.HasPrefix(path, "status") {
			found = append(found, path)
		}
	}
	return cell(found)
}

// event is one in the three formats.
func formats(t *testing.T, e export.Event) [3]values {
	return [3]values{jsonValues(t, write(t, newest(t), e)), jsonValues(t, write(t, ecs.New(), e)), cefValues(write(t, cef.New(), e))}
}

func isEnvelope(field string) bool {
	switch field {
	case "run", "seq", "time", "observer", "step", "guest_time.time", "guest_time.offset_ns", "tenant", "host's key":
		return true
	}
	return false
}

func fieldTable(t *testing.T, k audit.Kind) string {
	e := sample.Full(true)[k]
	return fieldRows(t, e, func(f string) bool { return !isEnvelope(f) })
}

func envelope(t *testing.T) string {
	return fieldRows(t, sample.Full(true)[audit.KindDNS], isEnvelope)
}

func fieldRows(t *testing.T, e sample.FullEvent, which func(string) bool) string {
	var b strings.Builder
	table(&b, []string{"field", "OCSF", "ECS", "CEF"})
	all, other := formats(t, e.Event), formats(t, variant(e))
	done := map[string]bool{}
	for _, l := range e.Leaves {
		if done[l.Field] || !which(l.Field) {
			continue
		}
		done[l.Field] = true
		line(&b, l.Field, places(l, all[0], other[0]), places(l, all[1], other[1]), places(l, all[2], other[2]))
	}
	for _, f := range e.Flags {
		if done[f.Field] || !which(f.Field) {
			continue
		}
		done[f.Field] = true
		f.Set(false)
		none := formats(t, e.Event)
		f.Set(true)
		line(&b, f.Field, flagPlaces(all[0], none[0]), flagPlaces(all[1], none[1]), flagPlaces(all[2], none[2]))
	}
	return b.String()
}

// variant is the same event in the other form of its kind: an exit that was seen, a file that
// was not renamed.
func variant(e sample.FullEvent) export.Event {
	v := e.Event
	switch {
	case v.Exit != nil:
		x := *v.Exit
		x.Synthetic, v.Exit = false, &x
	case v.File != nil:
		f := *v.File
		f.To, v.File = "", &f
	}
	return v
}

func line(b *strings.Builder, field string, cells ...string) {
	fmt.Fprintf(b, "| `%s` | %s |\n", field, strings.Join(cells, " | "))
}
