package docs_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
)

const generated = "// Generated from the tables in package audit by go test ./docs -run TestKinds -update. Do not edit.\n\n"

// TestKinds: docs, the OpenAPI document and the page list the kinds, rules and stages of package audit.
func TestKinds(t *testing.T) {
	for path, change := range map[string]func(*testing.T, []byte) []byte{
		"events.md":                     eventTables,
		"../replay/api/openapi.yaml":    kindEnum,
		"../replay/web/ui/src/kinds.ts": func(*testing.T, []byte) []byte { return pageKinds() },
	} {
		was, err := os.ReadFile(path)
		if err != nil && !*update {
			t.Fatal(err)
		}
		want := change(t, was)
		if bytes.Equal(was, want) {
			continue
		}
		if !*update {
			t.Errorf("%s lacks a kind, a rule or a stage of package audit, or has another text: run go test ./docs -run TestKinds -update%s", path, firstLine(was, want))
		} else if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Error(err)
		}
	}
}

// firstLine returns the first line of want that is not in was.
func firstLine(was, want []byte) string {
	for line := range bytes.Lines(want) {
		if !bytes.Contains(was, line) {
			return "; it begins to differ at\n" + string(line)
		}
	}
	return ""
}

// eventTables replaces the tables of events.md between their marks.
func eventTables(t *testing.T, text []byte) []byte {
	var kinds, stages, rules strings.Builder
	for _, k := range audit.KindTable() {
		observers := make([]string, len(k.Observers))
		for i, o := range k.Observers {
			observers[i] = string(o)
		}
		fmt.Fprintf(&kinds, "| `%s` | %s | %s |\n", k.Kind, strings.Join(observers, " or "), k.Text)
	}
	for _, s := range audit.Stages() {
		fmt.Fprintf(&stages, "| `%s` | %s | %s | %s |\n", s.Stage, s.Observer, s.Text, s.Meaning)
	}
	for _, r := range audit.Rules() {
		detail := r.Detail
		if detail != "" {
			detail = ". " + detail
		}
		fmt.Fprintf(&rules, "| `%s` | %s%s |\n", r.Rule, r.Text, detail)
	}
	text = between(t, text, "kinds", "| kind | observer | what it is |\n| --- | --- | --- |\n"+kinds.String())
	text = between(t, text, "stages", "| stage | observer | what happened | what it means |\n| --- | --- | --- | --- |\n"+stages.String())
	return between(t, text, "rules", "| rule | raised when |\n| --- | --- |\n"+rules.String())
}

// between replaces the text between the marks of a table.
func between(t *testing.T, text []byte, name, table string) []byte {
	t.Helper()
	begin, end := "<!-- table "+name+" -->\n", "<!-- end "+name+" -->"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("events.md has no table %s", name)
	}
	return []byte(before + begin + table + end + after)
}

// kindEnum replaces the values of the query parameter kind.
func kindEnum(t *testing.T, text []byte) []byte {
	names := make([]string, 0, len(audit.Kinds()))
	for _, k := range audit.Kinds() {
		names = append(names, string(k))
	}
	line := regexp.MustCompile(`(?m)(      name: kind\n      in: query\n      schema: \{type: array, items: \{type: string, enum: \[)[^\]]*`)
	if !line.Match(text) {
		t.Fatal("openapi.yaml has no parameter kind")
	}
	return line.ReplaceAll(text, []byte("${1}"+strings.Join(names, ", ")))
}

// pageKinds returns the page's module of kinds, rules and stages.
func pageKinds() []byte {
	var b, access bytes.Buffer
	b.WriteString(generated)
	b.WriteString("export const kinds = [\n")
	for _, k := range audit.KindTable() {
		fmt.Fprintf(&b, "  %q,\n", k.Kind)
		if !k.AccessLog {
			fmt.Fprintf(&access, "  %q,\n", k.Kind)
		}
	}
	b.WriteString("] as const;\nexport type Kind = (typeof kinds)[number];\n\n")
	fmt.Fprintf(&b, "/** The kinds of records that runs have; the others stand in access logs. */\nexport const runKinds: Kind[] = [\n%s];\n\n", &access)
	payloads := map[string]bool{}
	var names []string
	for _, k := range audit.KindTable() {
		if !payloads[k.Payload] {
			payloads[k.Payload], names = true, append(names, fmt.Sprintf("%q", k.Payload))
		}
	}
	fmt.Fprintf(&b, "/** The names of the payloads. */\nexport type Payload = %s;\n\n", strings.Join(names, " | "))
	fmt.Fprintf(&b, "/** What a record of a kind says, in a line. */\nexport const kindWords = new Map<string, string>([\n")
	for _, k := range audit.KindTable() {
		fmt.Fprintf(&b, "  [%q, %q],\n", k.Kind, k.Text)
	}
	fmt.Fprintf(&b, "]);\n\n/** What raises a finding, by its rule. */\nexport const findingWords = new Map<string, string>([\n")
	var disagree []string
	for _, r := range audit.Rules() {
		fmt.Fprintf(&b, "  [%q, %q],\n", r.Rule, strings.ReplaceAll(strings.ToUpper(r.Text[:1])+r.Text[1:]+".", "`", ""))
		if r.Disagreement {
			disagree = append(disagree, fmt.Sprintf("%q", r.Rule))
		}
	}
	fmt.Fprintf(&b, "]);\n\n/** The rules of findings that guest and host disagree about. */\nexport const disagreements = new Set<string>([%s]);\n", strings.Join(disagree, ", "))
	fmt.Fprintf(&b, "\n/** What happened where a gap declares a loss, by its stage. */\nexport const stageWords = new Map<string, string>([\n")
	for _, s := range audit.Stages() {
		fmt.Fprintf(&b, "  [%q, %q],\n", s.Stage, strings.ReplaceAll(s.Text, "`", ""))
	}
	b.WriteString("]);\n")
	return b.Bytes()
}

// TestKindPlaces: the docs, and the page's hand-written sources, handle each kind.
func TestKindPlaces(t *testing.T) {
	describe, fields, types := page(t, "../replay/web/ui/src/records/describe.ts"), page(t, "../replay/web/ui/src/panels/fields.ts"), page(t, "../replay/web/ui/src/types.ts")
	events, mapping := page(t, "events.md"), page(t, "mapping.md")
	for _, k := range audit.KindTable() {
		for where, ok := range map[string]bool{
			"records/describe.ts has no words for":            regexp.MustCompile(`(?m)^  ` + string(k.Kind) + `: `).MatchString(describe),
			"panels/fields.ts has no fields for":              regexp.MustCompile(`(?m)^  ` + k.Payload + `: `).MatchString(fields),
			"types.ts has no payload of":                      regexp.MustCompile(`(?m)^  ` + k.Payload + `\?: `).MatchString(types),
			"events.md has no section for":                    regexp.MustCompile("(?m)^## .*`" + string(k.Kind) + "`").MatchString(events),
			"events.md has no example of":                     strings.Contains(events, `"kind":"`+string(k.Kind)+`"`),
			"mapping.md has no table of severity or form for": strings.Contains(mapping, "| `"+string(k.Kind)+"` |"),
		} {
			if !ok {
				t.Errorf("%s the kind %s", where, k.Kind)
			}
		}
	}
}

// TestRulePlaces: docs/secrets.md lists the rules about credentials, and no others.
func TestRulePlaces(t *testing.T) {
	var want, got []string
	for _, r := range audit.Rules() {
		if r.Credential {
			want = append(want, string(r.Rule))
		}
	}
	_, table, _ := strings.Cut(page(t, "secrets.md"), "| rule of the finding | what happened |")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(table, -1) {
		got = append(got, m[1])
	}
	if slices.Sort(want); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("secrets.md lists the rules %v, package audit has %v", got, want)
	}
}

// TestConstants: code that raises a finding or declares a gap uses the constant of its rule or stage, so that the tables are complete.
func TestConstants(t *testing.T) {
	of := map[string]string{"Finding": "Rule", "Gap": "Stage"}
	found := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || slices.Contains([]string{"storetest", "sampleruns", "sample", "loadtest"}, d.Name())):
			return fs.SkipDir // these write records for tests
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			name := ""
			switch typ := lit.Type.(type) {
			case *ast.SelectorExpr:
				if x, ok := typ.X.(*ast.Ident); ok && x.Name == "audit" {
					name = typ.Sel.Name
				}
			case *ast.Ident:
				if file.Name.Name == "audit" {
					name = typ.Name
				}
			}
			for _, element := range lit.Elts {
				pair, ok := element.(*ast.KeyValueExpr)
				if !ok {
					continue
				}
				if key, ok := pair.Key.(*ast.Ident); !ok || of[name] != key.Name || name == "" {
					continue
				}
				found++
				if text, ok := pair.Value.(*ast.BasicLit); ok {
					t.Errorf("%s: audit.%s with %s %s: use a constant of package audit", path, name, of[name], text.Value)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 10 {
		t.Errorf("only %d findings and gaps were found in the code", found)
	}
}
