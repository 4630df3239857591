// Package docs_test checks the pages in this folder, and the README, against the code.
package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
)

const (
	root   = ".."
	module = "github.com/custody-project/custody/"
)

func page(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// pages are all pages by their path from here.
func pages(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range append(names, "../README.md") {
		all[name] = page(t, name)
	}
	return all
}

// fields adds the JSON names below a struct, each with the path to it.
func fields(t reflect.Type, prefix string, add func(string)) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case f.Anonymous:
			fields(inner, prefix, add)
			continue
		case inner.Kind() == reflect.Struct && inner.PkgPath() == t.PkgPath():
			fields(inner, prefix+name+".", add)
			continue
		case inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct:
			fields(inner.Elem(), prefix+name+".", add)
		}
		add(prefix + name)
	}
}

// TestEventFields: every field of a record is on the page, and no other.
func TestEventFields(t *testing.T) {
	text := page(t, "events.md")
	known, names := map[string]bool{}, map[string]bool{}
	fields(reflect.TypeFor[audit.Record](), "", func(path string) {
		known[path] = true
		for part := range strings.SplitSeq(path, ".") {
			names[part] = true
		}
		if !strings.Contains(text, "`"+path+"`") {
			t.Errorf("field %s is not in events.md", path)
		}
	})
	for _, m := range regexp.MustCompile("`([a-z_]+\\.[a-z_0-9]+)`").FindAllStringSubmatch(text, -1) {
		if group, _, _ := strings.Cut(m[1], "."); names[group] && !known[m[1]] {
			t.Errorf("events.md names the field %s, which no record has", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`"([a-z_0-9]+)":`).FindAllStringSubmatch(text, -1) {
		if !names[m[1]] && m[1] != "base64" {
			t.Errorf("an example in events.md has the key %s, which no record has", m[1])
		}
	}
}

// TestEventWords: every kind, status, operation and so on is on the page.
func TestEventWords(t *testing.T) {
	text := page(t, "events.md")
	file, err := parser.ParseFile(token.NewFileSet(), root+"/audit/event.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Type == nil {
			return true
		}
		for _, v := range spec.Values {
			word, err := strconv.Unquote(v.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			if found++; !strings.Contains(text, "`"+word+"`") {
				t.Errorf("%s %q is not in events.md", spec.Names[0].Name, word)
			}
		}
		return true
	})
	if found < 20 {
		t.Errorf("only %d words were found in audit/event.go", found)
	}
	for _, m := range regexp.MustCompile("(?m)^## (.*)$").FindAllStringSubmatch(text, -1) {
		for _, k := range regexp.MustCompile("`([a-z]+)`").FindAllStringSubmatch(m[1], -1) {
			if !strings.Contains(page(t, root+"/audit/event.go"), `Kind = "`+k[1]+`"`) {
				t.Errorf("events.md has a section for the kind %s, which does not exist", k[1])
			}
		}
	}
}

// imports returns the packages, each with the packages that its code, tests aside, imports.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	packages := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		list := packages[folder]
		for _, spec := range file.Imports {
			if to, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module); ours && !slices.Contains(list, to) {
				list = append(list, to)
			}
		}
		slices.Sort(list)
		packages[folder] = list
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

// TestPackages: architecture.md names every folder with code, and its arrows are the imports.
func TestPackages(t *testing.T) {
	text := page(t, "architecture.md")
	packages := imports(t)
	var arrows []string
	for _, folder := range slices.Sorted(maps.Keys(packages)) {
		if !strings.Contains(text, "`"+folder+"`") {
			t.Errorf("%s is not in architecture.md", folder)
		}
		if to := packages[folder]; len(to) > 0 {
			arrows = append(arrows, folder+" -> "+strings.Join(to, " "))
		}
	}
	_, rest, _ := strings.Cut(text, "```arrows\n")
	drawn, _, ok := strings.Cut(rest, "\n```")
	if !ok {
		t.Fatal("architecture.md has no block of arrows")
	}
	if want := strings.Join(arrows, "\n"); drawn != want {
		t.Errorf("the arrows in architecture.md are\n%s\n\nthe imports are\n%s", drawn, want)
	}
}

// help returns the program's commands, and its flags by command.
func help(t *testing.T) (commands []string, flags map[string]bool) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "custody")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, "../cmd/custody").CombinedOutput(); err != nil {
		t.Fatalf("build custody: %v\n%s", err, out)
	}
	say := func(args ...string) string {
		out, err := exec.Command(program, append(args, "--help")...).CombinedOutput()
		if err != nil {
			t.Fatalf("custody %v --help: %v\n%s", args, err, out)
		}
		return string(out)
	}
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z]+(?: [a-z]+){0,2})  `).FindAllStringSubmatch(say(), -1) {
		commands = append(commands, m[1])
	}
	flags = map[string]bool{}
	for _, c := range commands {
		for _, f := range regexp.MustCompile(`--[a-z]+`).FindAllString(say(strings.Fields(c)...), -1) {
			flags[f] = true
		}
	}
	return commands, flags
}

// code matches the code in a page: spans and indented lines.
var code = regexp.MustCompile("(?m)`[^`\n]+`|^    .*$")

// TestCommands: the commands and flags in the pages exist, and reference.md has every command.
func TestCommands(t *testing.T) {
	commands, flags := help(t)
	if len(commands) < 10 {
		t.Fatalf("help lists %q", commands)
	}
	group := func(word string) bool {
		return slices.ContainsFunc(commands, func(c string) bool { return strings.HasPrefix(c, word+" ") })
	}
	call := regexp.MustCompile(`(?:^|[ /` + "`" + `])custody ([a-z]+)(?: ([a-z]+))?(?: ([a-z]+))?`)
	for name, text := range pages(t) {
		for _, span := range code.FindAllString(text, -1) {
			for _, m := range call.FindAllStringSubmatch(span, -1) {
				word := m[1]
				for _, next := range m[2:] {
					if group(word) {
						word += " " + next
					}
				}
				if strings.HasPrefix(strings.TrimSpace(span), "custody "+word+" v1") {
					continue // the first line of a signed text
				}
				if !slices.Contains(commands, word) {
					t.Errorf("%s: %s: there is no command %q", name, span, word)
				}
			}
			if name != "../README.md" && name != "operations.md" && name != "reference.md" || strings.HasPrefix(strings.TrimSpace(span), "sudo mmdebstrap ") {
				continue
			}
			for _, f := range regexp.MustCompile(`(?:^|[ `+"`"+`])(--[a-z]+)`).FindAllStringSubmatch(span, -1) {
				if !flags[f[1]] {
					t.Errorf("%s: %s: there is no flag %s", name, span, f[1])
				}
			}
		}
	}
	reference := page(t, "reference.md")
	for _, c := range commands {
		if !strings.Contains(reference, "\n#### custody "+c+"\n") {
			t.Errorf("reference.md does not have the command %q", c)
		}
	}
}

// TestReadmeLength: the README has at most 150 lines.
func TestReadmeLength(t *testing.T) {
	if n := strings.Count(page(t, "../README.md"), "\n"); n > 150 {
		t.Errorf("the README has %d lines: move the reference to docs", n)
	}
}

// projectPrefixes are the paths of the mappings in custody.yaml by the functions of package project that read them.
var projectPrefixes = map[string]string{
	"top": "", "record": "record.", "limits": "limits.", "lifecycle": "lifecycle.", "step": "steps[].", "rule": "egress[].", "http": "egress[].http.", "secret": "secrets.NAME.",
}

// projectKeys returns the paths of the keys that custody.yaml can have, such as record.files.hash_over.
func projectKeys(t *testing.T) (paths []string) {
	t.Helper()
	for _, name := range []string{"shape", "lifecycle", "egress", "secret"} {
		file, err := parser.ParseFile(token.NewFileSet(), root+"/project/"+name+".go", nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			for _, key := range fieldKeys(f.Body, "") {
				prefix, ok := projectPrefixes[f.Name.Name]
				if !ok {
					t.Errorf("project.%s reads the key %s: add its path to projectPrefixes", f.Name.Name, key)
				}
				paths = append(paths, prefix+key)
			}
		}
	}
	return paths
}

// fieldKeys returns the keys in the literals of type fields below a node, each prefixed with the keys of the enclosing literals.
func fieldKeys(n ast.Node, prefix string) (keys []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		if name, ok := lit.Type.(*ast.Ident); !ok || name.Name != "fields" {
			return true
		}
		for _, e := range lit.Elts {
			pair := e.(*ast.KeyValueExpr)
			key := prefix + strings.Trim(pair.Key.(*ast.BasicLit).Value, `"`)
			keys = append(append(keys, key), fieldKeys(pair.Value, key+".")...)
		}
		return false
	})
	return keys
}

// TestProjectKeys: the table in reference.md has the keys that custody.yaml can have, and no other. A key has a row of its own,
// rows for the keys below it, or a mention in the row of the key above it.
func TestProjectKeys(t *testing.T) {
	_, table, _ := strings.Cut(page(t, "reference.md"), "\n## custody.yaml\n")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|(.*)$").FindAllStringSubmatch(table, -1) {
		for path := range strings.SplitSeq(strings.ReplaceAll(m[1], "`", ""), ", ") {
			rows[path] = m[2]
		}
	}
	keys := projectKeys(t)
	if len(keys) < 40 {
		t.Errorf("only %d keys were found in project", len(keys))
	}
	for _, path := range keys {
		above, key := "", path
		if at := strings.LastIndex(path, "."); at >= 0 {
			above, key = path[:at], path[at+1:]
		}
		below := func(row string) bool { return strings.HasPrefix(row, path+".") || strings.HasPrefix(row, path+"[") }
		_, own := rows[path]
		if !own && !slices.ContainsFunc(slices.Collect(maps.Keys(rows)), below) && !strings.Contains(rows[above], "`"+key+"`") {
			t.Errorf("the table in reference.md does not have the key %s", path)
		}
	}
	for path := range rows {
		if !slices.Contains(keys, path) {
			t.Errorf("the table in reference.md has the key %s, which custody.yaml does not have", path)
		}
	}
}

// TestNothingLocal: no page contains a path of a developer's machine or the host name of a registry.
func TestNothingLocal(t *testing.T) {
	for _, pattern := range []string{
		`(^|[^a-z0-9.])/(work|tmp|home|root|Users)/`, `golang\.org/(dl|toolchain)`, `proxy\.golang\.org`, `sum\.golang\.org`,
		`deb\.debian\.org`, `archive\.ubuntu\.com`, `snapshot\.debian\.org`, `\b(docker|ghcr|quay|gcr)\.io\b`, `pypi\.org`, `npmjs`, `crates\.io`,
	} {
		re := regexp.MustCompile(pattern)
		for name, text := range pages(t) {
			for i, line := range strings.Split(text, "\n") {
				if re.MatchString(line) {
					t.Errorf("%s:%d: %s", name, i+1, line)
				}
			}
		}
	}
}

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		kept := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all[strings.ReplaceAll(kept, " ", "-")] = true
	}
	return all
}

// TestLinks: the files and headings of this repository that the pages link to exist.
func TestLinks(t *testing.T) {
	for name, text := range pages(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := filepath.Join(filepath.Dir(name), target)
			if target == "" {
				path = name
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
				continue
			}
			if anchor != "" && !anchors(page(t, path))[anchor] {
				t.Errorf("%s links to %s: there is no such heading", name, m[1])
			}
		}
	}
}

// TestEveryPageIsListed: the README's list has each page.
func TestEveryPageIsListed(t *testing.T) {
	_, list, found := strings.Cut(page(t, "../README.md"), "## Documentation")
	if !found {
		t.Fatal("the README has no section Documentation")
	}
	for name := range pages(t) {
		if name != "../README.md" && !strings.Contains(list, "](docs/"+name+")") {
			t.Errorf("the README does not list docs/%s", name)
		}
	}
}
