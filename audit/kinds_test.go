package audit_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
)

// constants are the values of a type's constants in a file of this package.
func constants(t *testing.T, file, of string) (values []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := spec.Type.(*ast.Ident); ok && id.Name == of {
			word, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, word)
		}
		return true
	})
	return values
}

// same reports names that only one of two lists has, and duplicates.
func same(t *testing.T, what string, constants, table []string) {
	t.Helper()
	for _, c := range constants {
		if !slices.Contains(table, c) {
			t.Errorf("%s %s is not in the table", what, c)
		}
	}
	for i, c := range table {
		if !slices.Contains(constants, c) || slices.Contains(table[:i], c) {
			t.Errorf("the table has %s %s, for which there is no constant or another entry", what, c)
		}
	}
}

func oneLine(t *testing.T, name, text string) {
	t.Helper()
	if text == "" || strings.ContainsAny(text, "\n|") || strings.HasSuffix(text, ".") {
		t.Errorf("%s: text %q, want one line without a full stop or a bar", name, text)
	}
}

// TestKindTable: each kind has a complete entry, and each payload of an event belongs to a kind.
func TestKindTable(t *testing.T) {
	event := reflect.TypeFor[audit.Event]()
	payloads := map[string]reflect.Type{}
	for i := range event.NumField() {
		name, _, _ := strings.Cut(event.Field(i).Tag.Get("json"), ",")
		if f := event.Field(i).Type; f.Kind() == reflect.Pointer && name != "guest_time" {
			payloads[name] = f.Elem()
		}
	}
	var table []string
	used := map[string]bool{}
	for _, k := range audit.KindTable() {
		table = append(table, string(k.Kind))
		oneLine(t, string(k.Kind), k.Text)
		if used[k.Payload] = true; payloads[k.Payload] == nil {
			t.Errorf("kind %s: an event has no payload %q", k.Kind, k.Payload)
			continue
		}
		if len(k.Observers) == 0 || k.Severity == 0 {
			t.Errorf("kind %s has no observer, or no severity", k.Kind)
		}
		for _, c := range k.Columns {
			if !hasString(payloads[k.Payload], c.Field) {
				t.Errorf("kind %s: %s is no text in its payload", k.Kind, c.Field)
			}
		}
	}
	same(t, "kind", constants(t, "event.go", "Kind"), table)
	for name := range payloads {
		if !used[name] {
			t.Errorf("the payload %s belongs to no kind of the table", name)
		}
	}
}

func hasString(payload reflect.Type, name string) bool {
	for i := range payload.NumField() {
		if tag, _, _ := strings.Cut(payload.Field(i).Tag.Get("json"), ","); tag == name {
			return payload.Field(i).Type.Kind() == reflect.String
		}
	}
	return false
}

// TestPayload: an event of a kind has that kind's payload, and a recorder refuses any other.
func TestPayload(t *testing.T) {
	for _, k := range audit.Kinds() {
		e := audit.Event{Kind: k}
		if e.Payload() != nil || e.OwnPayload() == nil {
			t.Errorf("%s: a payload of an event without one", k)
		}
		want := e.SetPayload()
		if got := e.Payload(); got == nil || got != want {
			t.Errorf("%s: got %v, want %v", k, got, want)
		}
		if err := e.OwnPayload(); err != nil {
			t.Errorf("%s: %v", k, err)
		}
		alone := e
		for _, other := range audit.Kinds() {
			e.Kind = other
			e.SetPayload()
		}
		if e.Kind = k; e.OwnPayload() == nil {
			t.Errorf("%s: all payloads together are its own", k)
		}
		e.DropOthers()
		if e.OwnPayload() != nil || reflect.TypeOf(e.Payload()) != reflect.TypeOf(alone.Payload()) {
			t.Errorf("%s: after the others are dropped it has %v", k, e.Payload())
		}
	}
	foreign := audit.Event{Kind: "newer", Exec: &audit.Exec{}}
	if foreign.Payload() != nil || foreign.SetPayload() != nil || foreign.OwnPayload() == nil {
		t.Error("an event of an unknown kind has a payload")
	}
}

// TestRules: each rule of findings has a complete entry.
func TestRules(t *testing.T) {
	var table []string
	for _, r := range audit.Rules() {
		table = append(table, string(r.Rule))
		oneLine(t, string(r.Rule), r.Text)
	}
	same(t, "rule", constants(t, "rules.go", "Rule"), table)
}

// TestStages: each stage of gaps has a complete entry.
func TestStages(t *testing.T) {
	var table []string
	for _, s := range audit.Stages() {
		table = append(table, string(s.Stage))
		oneLine(t, string(s.Stage), s.Text)
		oneLine(t, string(s.Stage), s.Meaning)
		if s.Observer == "" {
			t.Errorf("%s has no observer", s.Stage)
		}
	}
	same(t, "stage", constants(t, "stages.go", "Stage"), table)
}
