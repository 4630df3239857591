package web

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// imported matches a module's import of another one by its path. What is imported when it is needed, by import(), is none: it cannot
// make a cycle while modules are loaded.
var imported = regexp.MustCompile(`(?ms)^(?:import|export)\b[^;"]*?\bfrom\s+"(\.[^"]+)"`)

// TestNoImportCycles: no module of the page imports itself over others, not even its types.
func TestNoImportCycles(t *testing.T) {
	imports := map[string][]string{}
	sources := os.DirFS("ui/src")
	err := fs.WalkDir(sources, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".ts" && path.Ext(name) != ".tsx" {
			return err
		}
		text, err := fs.ReadFile(sources, name)
		if err != nil {
			return err
		}
		imports[name] = nil
		for _, m := range imported.FindAllSubmatch(text, -1) {
			imports[name] = append(imports[name], path.Join(path.Dir(name), string(m[1])))
		}
		return nil
	})
	if err != nil || len(imports) < 50 {
		t.Fatalf("%d modules: %v", len(imports), err)
	}
	resolved := 0
	for name, list := range imports {
		for i, to := range list {
			for _, ending := range []string{".ts", ".tsx"} {
				if _, ok := imports[to+ending]; ok {
					list[i] = to + ending
					resolved++
				}
			}
		}
		imports[name] = list
	}
	if resolved < len(imports) {
		t.Fatalf("%d imports of %d modules were found", resolved, len(imports))
	}
	if cycle := findCycle(imports); cycle != nil {
		t.Errorf("modules import each other: %s", strings.Join(cycle, " -> "))
	}
}

// findCycle returns the nodes of a cycle in a graph, the first of them again at the end; nil if there is none.
func findCycle(edges map[string][]string) []string {
	done := map[string]bool{}
	var visit func(node string, trail []string) []string
	visit = func(node string, trail []string) []string {
		if i := slices.Index(trail, node); i >= 0 {
			return append(slices.Clone(trail[i:]), node)
		}
		if done[node] {
			return nil
		}
		for _, next := range edges[node] {
			if cycle := visit(next, append(trail, node)); cycle != nil {
				return cycle
			}
		}
		done[node] = true
		return nil
	}
	for node := range edges {
		if cycle := visit(node, nil); cycle != nil {
			return cycle
		}
	}
	return nil
}

func TestFindCycle(t *testing.T) {
	for name, c := range map[string]struct {
		edges map[string][]string
		want  bool
	}{
		"none":    {map[string][]string{"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": {"e"}}, false},
		"itself":  {map[string][]string{"a": {"a"}}, true},
		"of two":  {map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"b"}}, true},
		"of many": {map[string][]string{"a": {"b", "z"}, "b": {"c"}, "c": {"d"}, "d": {"a"}, "z": nil}, true},
	} {
		if got := findCycle(c.edges); (got != nil) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
