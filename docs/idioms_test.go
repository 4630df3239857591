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
	{`\bno one is asked\b`, "there is no upstream query, does not ask"},
	{`\bfor want of\b`, "without, because of a lack of"},
	{`\bone a line\b`, "one per line"},
	{`\bdoes not hold any more\b`, "is no longer valid"},
	{`\bit is not said (which|what|who)\b`, "name what is missing"},
})

// pageIdioms are refused in pages only: other texts use some of these words in another sense.
var pageIdioms = compiled([]idiom{
	{`\bas it is now\b`, "its present contents"},
	{`\bsays\b`, "states, names, prints, shows, reports"},
	{`\b(goes|went) on\b`, "continues; is live"},
	{`\blooked at\b`, "examined, checked"},
	{`\bput (back|together)\b`, "restored; combined"},
	{`\bstands (in|on|behind|beside|there|as)\b`, "is in; covers; follows"},
	{`\bthe walls\b|\bwall [1-5]\b`, "layer"},
	{`\b(is|are|was|were) taken over\b`, "compromised"},
	{`\bby turns\b`, "alternately"},
	{`\bbut for\b`, "except"},
	{`\bat the (most|least)\b`, "at most, at least"},
	{`\b(he|him|his|himself)\b`, "name the actor"},
	{`\btake (it|them) along\b`, "copy"},
	{`\ball else\b`, "everything else, the rest"},
	{`\bgood for\b`, "valid for"},
	{`\bits word\b`, "its claim"},
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
	{`\binmates?\b`, "process"},
	{`\bcages?\b`, "control group"},
	{`\bobituar(y|ies)\b`, "the reason of the end"},
	{`\bloose ends?\b`, "unconnected"},
	{`\b(machine|guest|vm|sandbox|clock|record|store|committer) (then )?stands? still\b`, "is paused, is stalled"},
	{`\bwho waits\b`, "name the waiter"},
	{`\bbelieves? in\b`, "trusts"},
	{`\bnone of (its|our|their|\w+'s) business\b`, "does not check, does not use"},
	{`\bwrit(e|es|ten) down\b`, "records, stores"},
	{`\btakes? itself for\b`, "name the state"},
	{`\bonce more\b`, "again"},
	{`\bbehind (its|our|their) backs?\b`, "name the actor: the kernel, another process"},
	{`\b(speaks?|sends?|leads?) unasked\b`, "unsolicited"},
	{`\bstep under way\b`, "the current step"},
	{`\bguards what follows\b`, "guards the fields below"},
	{`\bno one may change\b`, "callers must not change"},
})

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
			for _, idiom := range append(slices.Clip(idioms), pageIdioms...) {
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
	walk(t, func(path string) error {
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
}

// TestIdiomsInComments: comments of Go files use standard terms.
func TestIdiomsInComments(t *testing.T) {
	files := token.NewFileSet()
	walk(t, func(path string) error {
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil || path == "idioms_test.go" { // which lists them
			return err
		}
		for _, comment := range file.Comments {
			checkComment(t, files.Position(comment.Pos()).String(), comment.Text())
		}
		return nil
	})
}

// commentsOf finds the comments of other languages, line by line, and the texts of an OpenAPI document.
var commentsOf = map[string]*regexp.Regexp{
	".ts": slashes, ".tsx": slashes, ".c": slashes, ".h": slashes, ".css": slashes,
	".py": hashes, ".sh": hashes, ".toml": hashes, ".yml": hashes, ".txtar": hashes, "": hashes,
	".yaml": regexp.MustCompile(`#.*|(description|summary|title):.*`),
}

var (
	slashes = regexp.MustCompile(`//.*|/\*.*|^\s*\*.*`)
	hashes  = regexp.MustCompile(`#.*`)
)

// TestIdiomsInOtherFiles: comments in other languages use standard terms.
func TestIdiomsInOtherFiles(t *testing.T) {
	seen := map[string]int{}
	walk(t, func(path string) error {
		comment := commentsOf[filepath.Ext(path)]
		if comment == nil {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if filepath.Ext(path) == "" && !bytes.HasPrefix(text, []byte("#!")) && filepath.Base(path) != "Makefile" {
			return nil
		}
		for i, line := range strings.Split(string(text), "\n") {
			if found := comment.FindString(line); found != "" {
				seen[filepath.Ext(path)]++
				checkComment(t, fmt.Sprintf("%s:%d", path, i+1), found)
			}
		}
		return nil
	})
	for _, kind := range []string{".ts", ".tsx", ".h", ".py", ".txtar", ".yaml", ""} {
		if seen[kind] == 0 {
			t.Errorf("no comment was found in files that end in %q", kind)
		}
	}
}

// TestIdiomsInTexts: the texts of the page, the API's description, the reports' maps and the scripts use standard terms.
func TestIdiomsInTexts(t *testing.T) {
	seen := map[string]bool{}
	walk(t, func(path string) error {
		ext := filepath.Ext(path)
		if !slices.Contains([]string{".ts", ".tsx", ".html", ".yaml", ".py", ""}, ext) || strings.Contains(filepath.ToSlash(path), "/testdata/") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if ext == "" && !bytes.HasPrefix(text, []byte("#!")) {
			return nil
		}
		seen[ext] = true
		for i, line := range strings.Split(string(text), "\n") {
			for _, idiom := range idioms {
				if word := idiom.FindString(line); word != "" {
					t.Errorf("%s:%d: %q: write: %s", path, i+1, word, idiom.instead)
				}
			}
		}
		return nil
	})
	if len(seen) != 6 {
		t.Errorf("only these types of files were found: %v", seen)
	}
}

func checkComment(t *testing.T, at, text string) {
	t.Helper()
	for _, idiom := range append(slices.Clip(idioms), commentIdioms...) {
		if word := idiom.FindString(text); word != "" {
			t.Errorf("%s: %q: write: %s", at, word, idiom.instead)
		}
	}
}

// walk calls do with each file of the project that is not built or fetched.
func walk(t *testing.T, do func(path string) error) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(entry.Name(), ".") && path != ".." && entry.Name() != ".ci" && entry.Name() != ".github"
		if entry.IsDir() && (hidden || slices.Contains([]string{"node_modules", "bin", "dist"}, entry.Name())) {
			return fs.SkipDir
		}
		if entry.Type().IsRegular() {
			return do(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
