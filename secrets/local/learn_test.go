package local_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/secrets"
	"github.com/custody-project/custody/secrets/local"
)

// TestLearn: before any step, the redactor has the values in variables and files, whether or not a step uses them. No
// command is run, and a missing source is not an error.
func TestLearn(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("CUSTODY_TEST_UNBOUND", "a-variable-nobody-binds")
	t.Setenv("CUSTODY_TEST_SHORT", "short")
	put("key", "a-file-nobody-binds\n", 0o600)
	put("open", "a-file-for-everybody", 0o644)
	put("empty", "", 0o600)
	put("part", "of-its-own-name", 0o600)
	red := redact.New([]byte("key"))
	broker := local.Broker{}
	iss := secrets.NewIssuer(secrets.Config{
		Run: "r-1", Dir: dir, Recorder: &kept{}, Redactor: red,
		Brokers: map[string]secrets.Broker{"env": broker, "file": broker, "cmd": broker},
		Bindings: []secrets.Binding{
			{Name: "variable", From: "env:CUSTODY_TEST_UNBOUND", Deliver: secrets.Deliver{Env: "X"}},
			{Name: "file", From: "file:key"},
			{Name: "header", From: "file:" + filepath.Join(dir, "key"), Deliver: secrets.Deliver{Header: "authorization"}},
			{Name: "command", From: "cmd:touch called; echo what-a-command-prints"},
			{Name: "vault", From: "vault:secret/data/x#y"},
			{Name: "unset", From: "env:CUSTODY_TEST_NOT_SET"},
			{Name: "absent", From: "file:absent"},
			{Name: "nothing", From: "env:"},
			{Name: "short", From: "env:CUSTODY_TEST_SHORT"},
			{Name: "open", From: "file:open"},
			{Name: "empty", From: "file:empty"},
			{Name: "out-of-its-own-name", From: "file:part"},
		},
	})
	defer iss.Close(t.Context())
	var failed []string
	for name, err := range iss.Learn() {
		if strings.Contains(err.Error(), "nobody") {
			t.Errorf("%s: the error reveals the value: %v", name, err)
		}
		failed = append(failed, name)
	}
	slices.Sort(failed)
	if want := []string{"empty", "open", "out-of-its-own-name", "short"}; !slices.Equal(failed, want) {
		t.Errorf("failed %q, want %q", failed, want)
	}
	out := red.String("a-variable-nobody-binds, a-file-nobody-binds")
	if strings.Count(out, "[REDACTED:variable:") != 1 || strings.Count(out, "[REDACTED:file:") != 1 || strings.Contains(out, "nobody") {
		t.Errorf("%s", out)
	}
	if _, err := os.Stat(filepath.Join(dir, "called")); err == nil {
		t.Error("the command was run")
	}
	// Find ignores the marker of a learned value.
	if names := iss.Find([]byte(out)); len(names) > 0 {
		t.Errorf("found %q in %s", names, out)
	}
	if names := iss.Find([]byte("a-file-nobody-binds")); !slices.Equal(names, []string{"file"}) {
		t.Errorf("found %q", names)
	}
}

// kept is a record in memory.
type kept struct {
	mu       sync.Mutex // guards the fields below
	findings []string
}

func (k *kept) Record(ctx context.Context, ev audit.Event) (uint64, error) { return k.Post(ctx, ev) }

func (k *kept) Post(_ context.Context, ev audit.Event) (uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if ev.Finding != nil {
		k.findings = append(k.findings, string(ev.Finding.Rule)+" "+ev.Finding.Secret)
	}
	return 1, nil
}

// TestUnboundTurnsUp: the value of a secret that no step uses is an anomaly like that of others. No host may receive it,
// unless the secret is only masked.
func TestUnboundTurnsUp(t *testing.T) {
	t.Setenv("CUSTODY_TEST_A", "the-value-of-a")
	t.Setenv("CUSTODY_TEST_B", "the-value-of-b")
	var log kept
	iss := secrets.NewIssuer(secrets.Config{
		Run: "r-1", Recorder: &log, Redactor: redact.New([]byte("key")),
		Brokers: map[string]secrets.Broker{"env": local.Broker{}},
		Bindings: []secrets.Binding{
			{Name: "a", From: "env:CUSTODY_TEST_A", Deliver: secrets.Deliver{Env: "A"}},
			{Name: "b", From: "env:CUSTODY_TEST_B", Hosts: func(host string) bool { return host == "b.example.org" }},
		},
	})
	if errs := iss.Learn(); len(errs) > 0 {
		t.Fatal(errs)
	}
	p := iss.Printed("s")
	p.Write([]byte("it is the-value-of-a and the-value-of-b\n"), 3)
	p.End(3)
	for _, c := range []struct {
		secret, host string
		ok           bool
	}{{"a", "a.example.org", false}, {"b", "b.example.org", true}, {"b", "c.example.org", false}} {
		if ok := iss.Presented(t.Context(), c.secret, c.host, "body", 4); ok != c.ok {
			t.Errorf("%s to %s: %v", c.secret, c.host, ok)
		}
	}
	if err := iss.Close(t.Context()); err != nil { // waits for the findings
		t.Fatal(err)
	}
	slices.Sort(log.findings)
	if want := []string{"secret-in-output a", "secret-to-other-host a", "secret-to-other-host b"}; !slices.Equal(log.findings, want) {
		t.Errorf("findings %q, want %q", log.findings, want)
	}
}
