package fleet_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/project/registry"
	"github.com/custody-project/custody/quota"
	"github.com/custody-project/custody/run"
)

// register registers a project on the host of a rig.
func (r *rig) register(text string) {
	r.Helper()
	projects := registry.Registry{Dir: filepath.Join(r.home, "projects")}
	_, _, err := projects.Apply(r.Context(), []byte(text), registry.Change{Author: "ann"}, func(registry.Version) error { return nil })
	check(r.TB, err)
}

// TestPauseSecrets: a process with a credential in a file continues, and gets a new one there. One that has it in its memory makes that only the files of the sandbox are
// stored, which the description says; the files continue to exist.
func TestPauseSecrets(t *testing.T) {
	r := newVMRig(t, fleet.Config{})
	source := filepath.Join(r.home, "token")
	check(t, os.WriteFile(source, []byte("first-value-of-the-token"), 0o600))
	r.register("version: 1\nproject: shop\nsecrets:\n" +
		"  file: {from: \"file:" + source + "\", deliver: {file: token}}\n" +
		"  env: {from: \"file:" + source + "\", deliver: {env: TOKEN}}\n")
	s := r.create(fleet.Request{Project: "shop"})
	wait := "until [ -e /root/go ]; do sleep 0.05; done; "
	p, err := s.Start(t.Context(), run.Command{Argv: []string{"sh", "-c", "marker=not-a-secret; wc -c < /run/secrets/token; " + wait + "wc -c < /run/secrets/token"}, Secrets: []string{"file"}, Immediate: true}, false)
	check(t, err)
	lines(t, p, 0, 1)
	check(t, s.Pause(t.Context()))
	if !r.finds(s.ID, "marker=not-a-secret") {
		t.Error("the search finds nothing")
	}
	if r.finds(s.ID, "first-value-of-the-token") {
		t.Error("the stored memory contains the credential")
	}
	if i := s.Info(); i.Files != "" {
		t.Fatalf("only the files are stored: %s", i.Files)
	}
	check(t, os.WriteFile(source, []byte("another value of it"), 0o600))
	r.sh(s, "touch /root/go")
	if got := read(t, p, "stdout"); got != "24\n19\n" {
		t.Errorf("the length of the new value: %q", got)
	}

	p, err = s.Start(t.Context(), run.Command{Argv: []string{"sleep", "3600"}, Secrets: []string{"env"}}, false)
	check(t, err)
	r.sh(s, "echo kept > /root/file; mkdir -p /workspace/a; echo too > /workspace/a/b")
	check(t, s.Pause(t.Context()))
	if i := s.Info(); !strings.Contains(i.Files, "credential") || i.Running != 0 || i.State != fleet.Paused {
		t.Fatalf("%+v", i)
	}
	if _, _, err := p.Exit(); err == nil || !strings.Contains(err.Error(), "paused") {
		t.Errorf("the process: %v", err)
	}
	if got := r.sh(s, "cat /root/file /workspace/a/b; hostname"); !strings.HasPrefix(got, "kept\ntoo\n") {
		t.Errorf("the files: %q", got)
	}
	for _, dir := range []string{"paused", "paused-sandboxes"} {
		left, err := filepath.Glob(filepath.Join(r.home, dir, "r-*"))
		if check(t, err); len(left) > 0 {
			t.Errorf("left over: %q", left)
		}
	}
}

// TestFilesKilled: a service that was killed after it had stored only the files of a sandbox, and before it noted that, has the sandbox without its processes.
func TestFilesKilled(t *testing.T) {
	r := newVMRig(t, fleet.Config{})
	source := filepath.Join(r.home, "token")
	check(t, os.WriteFile(source, []byte("the value of the token"), 0o600))
	const project = "version: 1\nproject: shop\nsecrets:\n  env: {from: \"file:%\", deliver: {env: TOKEN}}\n"
	r.register(strings.ReplaceAll(project, "%", source))
	s := r.create(fleet.Request{Project: "shop"})
	r.sh(s, "echo kept > /root/file")
	_, err := s.Start(t.Context(), run.Command{Argv: []string{"sleep", "3600"}, Secrets: []string{"env"}}, false)
	check(t, err)
	check(t, s.Pause(t.Context()))
	want := s.Info().Files
	if want == "" {
		t.Fatal("the processes were stored")
	}
	r.Close()
	path := filepath.Join(r.home, "paused-sandboxes", s.ID+".json")
	text, err := os.ReadFile(path)
	check(t, err)
	var kept map[string]any
	check(t, json.Unmarshal(text, &kept))
	rested := kept["Rested"].(map[string]any)
	rested["Saved"], rested["Parent"] = map[string]any{}, nil
	for _, p := range kept["Processes"].([]any) {
		if p := p.(map[string]any); p["Name"] == "p2" {
			p["Ended"], p["Error"] = nil, ""
		}
	}
	text, err = json.Marshal(kept)
	check(t, err)
	check(t, os.WriteFile(path, text, 0o600))

	r = openRig(t, r.home, r.setting, fleet.Config{}, quota.Config{})
	again, err := r.Get("acme", s.ID)
	check(t, err)
	if i := again.Info(); i.Files != want || i.Running != 0 || i.State != fleet.Paused {
		t.Errorf("after the restart: %+v", i)
	}
	if got := r.sh(again, "cat /root/file"); got != "kept\n" {
		t.Errorf("the file: %q", got)
	}
}
