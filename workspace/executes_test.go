package workspace

import (
	"os"
	"path/filepath"
	"testing"
)

func TestExecutes(t *testing.T) {
	for name, want := range map[string]bool{
		"custody.yaml": true, "sub/custody.yaml": true, "CUSTODY.YAML": true, "custody.yaml.txt": false, "a.yaml": false,
		".git": true, "sub/.git": true, ".git/config": true, ".GIT/Config": true, ".git/config.worktree": true, ".git/hooks/pre-commit": true, ".git/hooks/a/b": true,
		".git/hooks/pre-commit.sample": false, ".git/info/attributes": true, ".git/info/exclude": false, ".git/commondir": true, ".git/rebase-merge/git-rebase-todo": true,
		".git/HEAD": false, ".git/ORIG_HEAD": false, ".git/index": false, ".git/objects/ab/cd": false, ".git/refs/heads/main": false, ".git/logs/HEAD": false, ".git/packed-refs": false,
		".git/modules/x/config": true, ".git/modules/x/hooks/post-checkout": true, ".git/modules/objects/config": true, ".git/modules/x/objects/ab/cd": false, ".git/modules/x/HEAD": false,
		".git/worktrees/w/gitdir": true, ".git/worktrees/w/HEAD": false, ".git/unknown": true, "a/.git/b/.git/config": true,
		"HEAD": true, "bare.git/HEAD": true, "bare.git/config": false, // which is nothing without HEAD
		".envrc": true, "sub/.envrc": true, ".vscode/tasks.json": true, ".vscode": false, "x/.idea/runConfigurations/a.xml": true, ".gitmodules": true, ".claude/settings.json": true,
		"main.go": false, "Makefile": false, "package.json": false, "config": false, "hooks/pre-commit": false, "envrc": false, ".github/workflows/ci.yml": false, ".gitignore": false, ".gitattributes": false,
	} {
		if got := Executes(name); (got != "") != want {
			t.Errorf("%s: %q, want a reason: %v", name, got, want)
		}
	}
}

func TestGuard(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"deploy/policy.yaml", "token", "bare.git/HEAD", "bare.git/hooks/x", "plain/hooks/x"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("token", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	g, err := NewGuard(".", GuardOptions{Named: []string{"deploy/policy.yaml", filepath.Join(dir, "token"), "not-yet.sh"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"deploy/policy.yaml": "deploy/policy.yaml" + Suffix, "token": "token" + Suffix, "link": "link" + Suffix, "not-yet.sh": "not-yet.sh" + Suffix,
		".envrc": ".envrc" + Suffix, "policy.yaml": "policy.yaml", "main.go": "main.go",
		"bare.git/config": "bare.git/config" + Suffix, "bare.git/hooks/x": "bare.git/hooks/x" + Suffix, "plain/config": "plain/config", "plain/hooks/x": "plain/hooks/x",
	} {
		as, why := g.File(name)
		if as != want || (why != "") != (as != name) {
			t.Errorf("%s is written as %s because %q, want %s", name, as, why, want)
		}
	}
	for name, want := range map[string]bool{".git/hooks": true, ".git/objects": true, ".vscode": true, ".envrc": true, "token": true, "src": false, "bin/tool": false} {
		if why := g.Link(name); (why != "") != want {
			t.Errorf("a link %s: %q, want a reason: %v", name, why, want)
		}
	}
}

// FuzzExecutes: no spelling of a path that a file system takes for the same hides what it is.
func FuzzExecutes(f *testing.F) {
	for _, s := range []string{".git/config", ".git/hooks/x", "a/.vscode/tasks.json", "HEAD", ".git/modules/a/b/config"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		why := Executes(name)
		for _, other := range []string{"./" + name, name + "/", "x/../" + name} {
			if got := Executes(other); got != why && filepath.Clean(other) == filepath.Clean(name) {
				t.Errorf("%q: %q, %q: %q", name, why, other, got)
			}
		}
	})
}
