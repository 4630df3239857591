package workspace

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree is the files of the oracle's repository: names that end in "/" are directories.
var tree = []string{
	"a", "b", "ab", "abc", "a b", "a ", "#a", "!a", "\\a", "*", "[a]", "a]", "-", "é", "x\xff", "A", "0", "a.b", ".a", "a.b.c",
	"d/", "d/a", "d/b", "d/abc", "d/e/", "d/e/a", "d/e/f/", "d/e/f/a", "d/e/f/abc", "d/a.b", "d/.a", "abcd/", "abcd/a", "abcd/e/a",
	"f/", "f/d/", "f/d/a", "f/d/e/a", "foo/", "foo/x/", "foo/x/bar", "foobar/", "foobar/bar", "foo/bar", "e/", "e/e/", "e/e/e/", "e/e/e/a",
}

// TestIgnore compares with git check-ignore, which defines the semantics.
func TestIgnore(t *testing.T) {
	o := newOracle(t)
	for _, text := range []string{
		"", "a\n", "a", "/a\n", "d/\n", "d/a\n", "/d/a\n", "*/a\n", "**/a\n", "d/**\n", "d/**/a\n", "**/e/**\n", "**\n", "*\n", "*\n!a\n", "d/*\n!d/e/\n", "d/\n!d/a\n",
		"d/*\n!d/e\nd/e/*\n!d/e/f\n", "#a\n", "\\#a\n", "\\!a\n", "!a\n", "a\n!a\n", "!a\na\n", "a b\n", "a \n", "a\\ \n", "a\\  \n", "a \\\n", "a\\\n", "\\a\n", "\\\\a\n", "a\r\nb\r\n",
		"[ab]\n", "[!ab]\n", "[^ab]\n", "[a-c]\n", "[c-a]\n", "[]a]\n", "[a\n", "[a-]\n", "[-a]\n", "[[:alpha:]]\n", "[[:digit:]-]\n", "[[:none:]]\n", "[[:alpha:]\n", "[[:alpha]\n",
		"[\\]]\n", "[\\[]a]\n", "[[]a]\n", "?\n", "??\n", "???\n", "d?a\n", "d/?\n", "d[/]a\n", "d[!x]a\n", "*.b\n", "*.b*\n", "a*\n", "*c\n", "a*c\n", "a**c\n", "d/a**\n", "d/**a\n",
		"foo**/bar\n", "foo*/bar\n", "foo/**bar\n", "**foo/bar\n", "foo/**/bar\n", "foo/**/**/bar\n", "/**/a\n", "**/d/**/a\n", "e/**/a\n", "d\\/a\n", "d/**\\/a\n", "d\\/**\n", "a//b\n",
		"/\n", "//\n", "!\n", "!/\n", " a\n", "\ta\n", "a\t\n", "\ufeffa\n", "é\n", "??\xff\n", "x?\n", "*\xff\n", "[\xff]\n", "x[\xff]\n", "d/*/a\n", "*/*/a\n", "*/\n", "**/\n", "/*/\n", "/*\n!/d\n",
		"\\*\n", "\\[a\\]\n", "[*]\n", ".*\n", "d/.*\n", "*.*\n", "d/e/f\n", "/d/e/f/\n", "f/d\n", "d/e/\n", "\\\n", "a\x00b\n", "[\x00]\n", "**/**\n", "***\n", "d/***/a\n", "d***/a\n",
	} {
		o.compare(t, text)
	}
}

// TestIgnoreRandom compares random patterns of syntactically relevant parts.
func TestIgnoreRandom(t *testing.T) {
	o := newOracle(t)
	parts := []string{"a", "b", "c", "d", "e", "f", "foo", "bar", "*", "**", "?", "/", "/", "[ab]", "[!a]", "[a-e]", "\\", "!", "#", " ", ".", "]", "[", "-", "[[:alpha:]]", "\xc3\xa9", "*/", "/**/", "**/"}
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var text strings.Builder
		for range 1 + r.IntN(3) {
			for range 1 + r.IntN(5) {
				text.WriteString(parts[r.IntN(len(parts))])
			}
			text.WriteByte('\n')
		}
		o.compare(t, text.String())
	}
}

// oracle is a git repository that contains the tree.
type oracle struct{ dir string }

func newOracle(t *testing.T) oracle {
	t.Helper()
	o := oracle{t.TempDir()}
	o.git(t, "", "init", "-q", ".")
	for _, name := range tree {
		at := filepath.Join(o.dir, name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if err == nil && strings.HasSuffix(name, "/") {
			err = os.MkdirAll(at, 0o755)
		} else if err == nil {
			err = os.WriteFile(at, nil, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func (o oracle) git(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = o.dir, strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "HOME="+o.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_DIR="+filepath.Join(o.dir, ".git"), "GIT_WORK_TREE="+o.dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if exit := new(exec.ExitError); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) { // 1: nothing is ignored
		t.Fatalf("git %q: %v: %s", args, err, stderr.String())
	}
	return string(out)
}

// compare checks that Match excludes the same entries as git ignores.
func (o oracle) compare(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(o.dir, ".gitignore"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	g, err := ParseIgnore([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	names := strings.ReplaceAll(strings.Join(tree, "\x00"), "/\x00", "\x00")
	out := strings.Split(o.git(t, names, "check-ignore", "--no-index", "--stdin", "-z"), "\x00")
	var got, want []string
	for _, name := range tree {
		plain, folder := strings.CutSuffix(name, "/")
		if slices.Contains(out, plain) {
			want = append(want, name)
		}
		if left(g, plain, folder) {
			got = append(got, name)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q leaves out\n%q, git ignores\n%q", text, got, want)
	}
}

// left calls Match for an entry and the directories above it.
func left(g *Ignore, name string, folder bool) bool {
	if dir := path.Dir(name); dir != "." && left(g, dir, true) {
		return true
	}
	return g.Match(name, folder)
}

func TestIgnoreLimit(t *testing.T) {
	if _, err := ParseIgnore(make([]byte, maxIgnore+1)); err == nil {
		t.Error("a list without end was taken")
	}
	if _, err := ParseIgnore(bytes.Repeat([]byte("a"), maxPattern+1)); err == nil {
		t.Error("a pattern that no path is long enough for was taken")
	}
	if _, err := ParseIgnore(bytes.Repeat([]byte(strings.Repeat("[!a-z/]", maxPattern/7)+"\n"), maxIgnore/maxPattern)); err != nil {
		t.Error(err)
	}
	if (*Ignore)(nil).Match("a", false) {
		t.Error("without a list something is left out")
	}
	// A pattern on which a backtracking matcher would not end.
	g, err := ParseIgnore([]byte(strings.Repeat("*a", 200) + "b\n" + strings.Repeat("**/", 200) + "b\n"))
	if err != nil {
		t.Fatal(err)
	}
	if g.Match(strings.Repeat("a/", 1000)+strings.Repeat("a", 255), false) {
		t.Error("it matches")
	}
}

// FuzzIgnore: parsing and matching end for all inputs.
func FuzzIgnore(f *testing.F) {
	for _, text := range []string{"a\n!b\n", "[[:alpha:]-\\]", "d/**/a", "\\"} {
		f.Add(text, "d/a")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		g, err := ParseIgnore([]byte(text))
		if err == nil {
			g.Match(name, false)
			g.Match(name, true)
		}
	})
}
