package workspace

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
		".vſcode/tasks.json": true, ".g\u200cit/config": true, ".GiT./config": true, ".git /config": true, "GIT~1/config": true, "cuſtody.yaml": true, "custody.yaml::$DATA": true, ".envrc.": true, "custody.yaml\ufe0f": true, "...": false,
		".hg/hgrc": true, ".hg/store/data/a.i": false, ".hg/store/hgrc": true, ".hg/sharedpath": true, ".hg/dirstate": false, ".hgsub": true, ".jj/repo/config.toml": true,
		".envrc.local": true, "my.code-workspace": true, "mise.prod.toml": true, ".local/bin/git": true, ".mcp.json": true, "shell.nix": true, ".kube/config": true,
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

// TestConfigured: files that git's configuration of a repository names are not replaced: hooks, filters, included files.
func TestConfigured(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	run := func(args ...string) *exec.Cmd {
		cmd := exec.Command("git", args...)
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME=", "GIT_CONFIG_NOSYSTEM=1")
		return cmd
	}
	git := func(args ...string) {
		t.Helper()
		if out, err := run(args...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	sub := filepath.Join(dir, "vendor", "lib")
	git("config", "--global", "core.hooksPath", "dev/hooks")
	git("config", "--global", "init.defaultBranch", "main")
	for _, repo := range []string{dir, sub} {
		git("init", "-q", repo)
	}
	git("-C", dir, "config", "filter.clean.clean", "python3 'tools/clean.py' --fast")
	git("-C", dir, "config", "alias.build", "!sh "+filepath.Join(dir, "Build.sh"))
	git("-C", dir, "config", "include.path", "../team.gitconfig")
	if err := os.WriteFile(filepath.Join(dir, "team.gitconfig"), []byte("[diff]\n\texternal = ./differ\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	git("-C", sub, "config", "core.fsmonitor", "watch.sh")
	for _, at := range []string{dir, filepath.Join(dir, "vendor")} { // the repository's own directory, and one in it
		g, err := NewGuard(at, GuardOptions{Git: run})
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{
			"dev/hooks/pre-commit": true, "tools/clean.py": true, "Build.sh": true, "build.SH": true, "differ": true, "new/dev/hooks/post-checkout": true,
			"vendor/lib/dev/hooks/x": true, "vendor/lib/watch.sh": true, "vendor/tools": false,
			"main/main.go": false, "tools/other.py": false, "vendor/lib/main.go": false, "watch.sh": false,
		} {
			from, err := filepath.Rel(at, filepath.Join(dir, name))
			if err != nil || strings.HasPrefix(from, "..") {
				continue
			}
			if _, why := g.File(from); (why != "") != want {
				t.Errorf("%s in %s: %q, want a reason: %v", from, at, why, want)
			}
		}
		if why := g.Link("dev/hooks"); at == dir && why == "" {
			t.Error("a link may be made in the place of the hooks' folder")
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ".git", "config"), []byte("[core\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := NewGuard(dir, GuardOptions{Git: run}); err == nil || !strings.Contains(err.Error(), "bad config") {
		t.Errorf("a configuration that cannot be read: %v", err)
	}
}

// TestHooksInPlace: if core.hooksPath is the repository's directory, no file is copied out under its own name.
func TestHooksInPlace(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{"init", "-q"}, {"config", "core.hooksPath", "."}} {
		if out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	g, err := NewGuard(dir, GuardOptions{Git: func(args ...string) *exec.Cmd { return exec.Command("git", args...) }})
	if err != nil {
		t.Fatal(err)
	}
	if as, _ := g.File("pre-commit"); as != "pre-commit"+Suffix {
		t.Errorf("a hook is written as %s", as)
	}
}

// FuzzExecutes: Executes gives the same result for all spellings that a file system considers the same path.
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

// TestHostileConfiguration: a configuration that makes git wait or print without end is an error.
func TestHostileConfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		want  error
		limit time.Duration
		write func(included string) error
	}{
		"a FIFO": {errSlowGit, time.Second, func(included string) error { return unix.Mkfifo(included, 0o600) }},
		"a large file": {errLargeConf, gitTime, func(included string) error {
			return os.WriteFile(included, []byte("[a]\n"+strings.Repeat("b = "+strings.Repeat("c", 100)+"\n", gitOutput/100)), 0o600)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			included := filepath.Join(dir, "included")
			git := func(args ...string) *exec.Cmd { return exec.Command("git", append([]string{"-C", dir}, args...)...) }
			for _, args := range [][]string{{"init", "-q"}, {"config", "include.path", included}} {
				if _, err := output(git(args...), gitTime); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.write(included); err != nil {
				t.Fatal(err)
			}
			if _, err := output(git("config", "--null", "--list"), c.limit); !errors.Is(err, c.want) {
				t.Errorf("the error is %v, want %v", err, c.want)
			}
		})
	}
}
