package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/custody-project/custody/sandbox"
)

const referencePage = "../../docs/reference.md"

var updateReference = flag.Bool("update-reference", false, "write the generated part of docs/reference.md")

// generatedPart matches the part of docs/reference.md that is generated from the command line.
var generatedPart = regexp.MustCompile(`(?s)(<!-- generated: [^\n]*-->\n).*(<!-- end of the generated part -->)`)

// TestReference: docs/reference.md has the usage, the arguments and the flags of every command as --help prints them.
// After a change to the command line run go test ./cmd/custody -run 'TestReference$' -update-reference.
func TestReference(t *testing.T) {
	b, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	part := generatedPart.FindStringSubmatch(string(b))
	if part == nil {
		t.Fatalf("%s has no generated part", referencePage)
	}
	want := part[1] + "\n" + referenceOf() + part[2]
	switch {
	case part[0] == want:
	case *updateReference:
		if err := os.WriteFile(referencePage, []byte(strings.Replace(string(b), part[0], want, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("docs/reference.md differs from the command line, first at\n%s\nrun: go test ./cmd/custody -run 'TestReference$' -update-reference", firstDifference(part[0], want))
	}
}

// firstDifference returns the first line in which two texts differ.
func firstDifference(got, want string) string {
	old, lines := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(old), len(lines)) {
		if old[i] != lines[i] {
			return "- " + old[i] + "\n+ " + lines[i]
		}
	}
	return fmt.Sprintf("line %d, the end of one of them", min(len(old), len(lines)))
}

// referenceOf describes every command in Markdown, in the order and under the headings of custody --help.
func referenceOf() string {
	model := newParser(new(cli), io.Discard, io.Discard, func() {}).Model
	var s strings.Builder
	s.WriteString("Flags of all commands:\n\n| argument | meaning |\n| --- | --- |\n")
	for _, f := range model.Flags {
		s.WriteString(referenceRow(f.String(), f.Value))
	}
	for _, g := range groups {
		fmt.Fprintf(&s, "\n### %s\n", strings.TrimSuffix(g.Title, ":"))
		for _, leaf := range model.Leaves(true) {
			if leaf.ClosestGroup().Key == g.Key {
				referenceCommand(&s, leaf)
			}
		}
	}
	return s.String()
}

// referenceCommand describes one command.
func referenceCommand(s *strings.Builder, command *kong.Node) {
	fmt.Fprintf(s, "\n#### %s\n\n`custody %s`\n\n%s\n", command.FullPath(), command.Summary(), command.Help)
	rows := ""
	for _, p := range command.Positional {
		rows += referenceRow(p.Summary(), p)
	}
	for parent := command; parent.Type == kong.CommandNode; parent = parent.Parent {
		for _, f := range parent.Flags {
			if !f.Hidden {
				rows += referenceRow(f.String(), f.Value)
			}
		}
	}
	if rows != "" {
		fmt.Fprintf(s, "\n| argument | meaning |\n| --- | --- |\n%s", rows)
	}
}

func referenceRow(name string, v *kong.Value) string {
	help := v.Help
	for _, variable := range v.Tag.Envs {
		help = strings.TrimSuffix(help, ".") + ", `$" + variable + "`."
	}
	return fmt.Sprintf("| `%s` | %s |\n", strings.ReplaceAll(name, "|", `\|`), strings.ReplaceAll(help, "|", `\|`))
}

// TestExitCodes: the table in docs/reference.md has each exit code of the code, with the command that uses it.
func TestExitCodes(t *testing.T) {
	page, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Exit codes\n")
	table, _, _ = strings.Cut(table, "\n## ")
	has := func(code int, command string) {
		t.Helper()
		row := regexp.MustCompile(fmt.Sprintf("(?m)^\\| (\\d+, )*%d(, \\d+)* \\| ([^|]*`%s|all )", code, regexp.QuoteMeta(command)))
		if !row.MatchString(table) {
			t.Errorf("docs/reference.md does not have the exit code %d of %s", code, command)
		}
	}
	for _, code := range []int{sandbox.ExitTimeout, sandbox.ExitFailed, exitFailed, exitUsage} {
		has(code, "run")
	}
	for _, m := range regexp.MustCompile(`ExecError\{Code: (\d+)`).FindAllStringSubmatch(readSource(t, "../../guest/cell/cell.go"), -1) {
		code, _ := strconv.Atoi(m[1])
		has(code, "run")
	}
	found := 0
	for file, codes := range exitCodes(t) {
		for code := range codes {
			found++
			has(code, commandOf(file))
		}
	}
	if found < 10 {
		t.Errorf("only %d exit codes were found in the code", found)
	}
}

// commandOf returns the command that a source file implements.
func commandOf(file string) string {
	switch file {
	case "secrets.go":
		return "secrets check"
	case "notify.go":
		return "notify test"
	case "policy.go":
		return "policy check"
	case "showbundle.go":
		return "timeline"
	}
	return strings.ReplaceAll(strings.TrimSuffix(file, ".go"), "_", " ")
}

func readSource(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// exitCodes returns the exit codes that each source file of this package returns as a constant.
func exitCodes(t *testing.T) map[string]map[int]bool {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[int]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		codes := map[int]bool{}
		add := func(e ast.Expr) {
			switch e := e.(type) {
			case *ast.CallExpr:
				if name, ok := e.Fun.(*ast.Ident); ok && name.Name == "exitCode" && len(e.Args) == 1 {
					if n, ok := e.Args[0].(*ast.BasicLit); ok {
						code, _ := strconv.Atoi(n.Value)
						codes[code] = true
					}
				}
			case *ast.Ident:
				switch e.Name {
				case "exitDoesNotHold":
					codes[int(exitDoesNotHold)] = true
				case "exitCannotBeKnown":
					codes[int(exitCannotBeKnown)] = true
				}
			}
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if r, ok := n.(*ast.ReturnStmt); ok {
				for _, e := range r.Results {
					add(e)
				}
			}
			return true
		})
		if len(codes) > 0 {
			all[file] = codes
		}
	}
	return all
}
