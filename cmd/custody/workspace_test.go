package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/workspace"
)

// TestOutExecutesNothing: what a step writes into its workspace does not become what the host executes:
// neither the project's file and the script that it names, nor what git, a shell and an editor run by themselves.
func TestOutExecutesNothing(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env = d.dir, append(os.Environ(), "HOME="+t.TempDir(), "GIT_CONFIG_NOSYSTEM=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	git("init", "-q", ".")
	git("config", "core.hooksPath", "dev/hooks")
	d.write(filepath.Join(d.dir, "key.sh"), "echo value-from-the-owners-script\n")
	d.project(`version: 1
secrets:
  key: {from: "cmd:sh ./key.sh", deliver: {env: KEY}}
`)
	hostile := []string{
		"custody.yaml", "key.sh", ".git/config", ".git/hooks/pre-commit", ".git/hooks/post-index-change", ".envrc", ".vscode/tasks.json",
		"sub/custody.yaml", "bare/HEAD", "sub/.git/config", "dev/hooks/pre-commit", ".hg/hgrc", ".vſcode/tasks.json",
	}
	was := map[string]string{}
	for _, name := range hostile {
		b, _ := os.ReadFile(filepath.Join(d.dir, name))
		was[name] = string(b)
	}
	d.clearError(d.custody("run", "--secret", "key", "--", "true"), "does not run as root")
	for _, dir := range []string{filepath.Dir(d.dir), d.dir} { // a user's, who calls sudo
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d.env = append(d.env, "SUDO_UID=65534")
	s := d.script(0, "true")
	mark := filepath.Join(t.TempDir(), "executed")
	s = d.must(0, "run", "-q", "--secret", "key", "--workdir", d.dir, "--out", d.dir, "--", "sh", "-ec", `
		evil="touch `+mark+`"
		for f in `+strings.Join(hostile, " ")+`; do mkdir -p $(dirname $f); printf '#!/bin/sh\n%s\n' "$evil" > $f; chmod 755 $f; done
		printf '[core]\n\trepositoryformatversion = 0\n\tfsmonitor = "%s"\n' "$evil" | tee .git/config bare/config sub/.git/config > /dev/null
		echo 'ref: refs/heads/main' | tee bare/HEAD sub/.git/HEAD > /dev/null
		mkdir -p bare/objects bare/refs sub/.git/objects sub/.git/refs
		printf 'version: 1\nsecrets:\n  key: {from: "cmd:%s; echo 12345678", deliver: {env: KEY}}\n' "$evil" > custody.yaml
		echo kept > result.txt`)
	for _, name := range hostile {
		b, _ := os.ReadFile(filepath.Join(d.dir, name))
		if string(b) != was[name] {
			t.Errorf("%s was replaced by %q", name, b)
		}
		if _, err := os.Lstat(filepath.Join(d.dir, name+workspace.Suffix)); err != nil {
			t.Errorf("what the step wrote as %s is lost: %v", name, err)
		}
	}
	d.contains(s.stderr, fmt.Sprintf("and %d more", len(hostile)-10))
	if n := strings.Count(s.stderr, workspace.Suffix); n != 10 {
		t.Errorf("%d notices of files that were renamed, want 10: %s", n, s.stderr)
	}
	if b, _ := os.ReadFile(filepath.Join(d.dir, "result.txt")); string(b) != "kept\n" {
		t.Errorf("the step's own file is %q", b)
	}
	d.script(0, "true")
	git("status")
	git("-C", "sub", "status")
	git("add", "result.txt")
	git("-c", "user.name=a", "-c", "user.email=a@example", "commit", "-qm", "a result")
	cmd := exec.Command("git", "status")
	cmd.Dir = filepath.Join(d.dir, "bare")
	cmd.Run()
	if _, err := os.Stat(mark); err == nil {
		t.Error("the host executed what a step wrote")
	}
}
