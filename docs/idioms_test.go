package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// idioms are private words for things that have a standard term, and what to write instead. glossary.md has the terms.
// Only this file and the glossary may contain them.
var idioms = compiled([]idiom{
	{`\bwhoever\b`, "name the actor, or: anyone who"},
	{`\b(nobody|somebody|anybody)\b`, "name the actor, or: no one, someone, anyone"},
	{`\bwho (is to|looks|asks|reads|wants) `, "name the actor: the verifier, the client, the reader"},
	{`\b(is|are|was|were|be|been|being) told\b`, "is reported, gets an answer, is set to"},
	{`\btold (at|of|on|about|apart)\b`, "reported, distinguished"},
	{`\bat once\b`, "concurrently, or immediately"},
	{`\banew\b`, "again"},
	{`\bby another way\b`, "over another channel"},
	{`\blittle internet\b`, "simulated internet"},
	{`\bvouch(es|ed)?\b`, "attests, cosigns"},
	{`\bgoes by\b`, "follows"},
	{`\bcalls of (language )?models?\b`, "LLM API calls"},
	{`\blets? nothing (in|out)\b`, "denies"},
	{`\bkeeps? (no one|nobody) from\b`, "does not prevent"},
})

// commentIdioms are refused in comments only.
var commentIdioms = compiled([]idiom{
	{`\bsays? (so|what|which|whether|who|how|why|where|that)\b`, "reports whether, returns, names, states"},
	{`\bwhat (it|they) says?\b`, "its contents, or name the field"},
	{`\bc[ao]mes? of it\b`, "the outcome"},
	{`\btells? (of|it|them|him|others|whether|what|that|how)\b`, "reports, distinguishes"},
	{`\bknows? of\b`, "has, finds, is aware of"},
	{`\bin the way\b`, "blocks"},
	{`\b(nobody|somebody|anybody)'s\b`, "name the owner"},
	{`\bwho may\b`, "name the user"},
	{`\bby another way\b`, "over a separate trusted channel"},
})

// cleanFolders are those whose comments contain no idioms, in tests and other code. The list grows.
var cleanFolders = []string{
	"audit",
	"cmd",
	"dnsproxy",
	"docs",
	"doctor",
	"egress",
	"export",
	"gateway",
	"guest",
	"hack",
	"host",
	"internal",
	"llm",
	"metrics",
	"netpolicy",
	"notify",
	"project",
	"redact",
	"redteam",
	"replay",
	"run",
	"sandbox",
	"secrets",
	"ship",
	"store",
	"vmm",
	"workspace",
}

type idiom struct{ pattern, instead string }

type rule struct {
	*regexp.Regexp
	instead string
}

func compiled(list []idiom) (all []rule) {
	for _, i := range list {
		all = append(all, rule{regexp.MustCompile(`(?i)` + strings.ReplaceAll(i.pattern, " ", `\s+`)), i.instead})
	}
	return all
}

// TestIdioms: the pages use standard terms. Indented lines are left out: they quote the output of programs.
func TestIdioms(t *testing.T) {
	for name, text := range pages(t) {
		if name == "glossary.md" { // it lists what not to write
			continue
		}
		for i, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, "    ") {
				continue
			}
			for _, idiom := range idioms {
				if word := idiom.FindString(line); word != "" {
					t.Errorf("%s:%d: %q: write: %s", name, i+1, word, idiom.instead)
				}
			}
		}
	}
}

// bundleText has the explanation in every bundle. It is part of the format, so that its words stay.
const bundleText = "../audit/proof/bundle.go"

// TestIdiomsInStrings: help, errors and all other string literals use standard terms.
func TestIdiomsInStrings(t *testing.T) {
	files := token.NewFileSet()
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != ".." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || path == filepath.FromSlash(bundleText) {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			text, ok := n.(*ast.BasicLit)
			if !ok || text.Kind != token.STRING {
				return true
			}
			if text.Value == `"nobody"` || strings.Contains(text.Value, "access/nobody ") {
				return true // the Unix user; the name of a sample
			}
			for _, idiom := range idioms {
				if word := idiom.FindString(text.Value); word != "" {
					t.Errorf("%s: %q: write: %s", files.Position(text.Pos()), word, idiom.instead)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestIdiomsInComments: comments in cleanFolders use standard terms.
func TestIdiomsInComments(t *testing.T) {
	rules := append(slices.Clip(idioms), commentIdioms...)
	files := token.NewFileSet()
	for _, folder := range cleanFolders {
		seen := 0
		err := filepath.WalkDir(filepath.Join("..", folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			seen++
			for _, comment := range file.Comments {
				text := comment.Text()
				for _, idiom := range rules {
					if word := idiom.FindString(text); word != "" {
						t.Errorf("%s: %q: write: %s", files.Position(comment.Pos()), word, idiom.instead)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if seen == 0 {
			t.Errorf("%s has no Go files: correct cleanFolders", folder)
		}
	}
}
