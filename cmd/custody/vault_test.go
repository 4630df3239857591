package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/custody-project/custody/audit"
)

// vaultEnv names the program that hack/vault builds: a real Vault server.
const vaultEnv = "CUSTODY_TEST_VAULT"

// vaultServer is a real Vault of the test's own, on loopback.
type vaultServer struct {
	*api.Client
	addr, token string
	cmd         *exec.Cmd
}

func newVault(t *testing.T) *vaultServer {
	t.Helper()
	program := os.Getenv(vaultEnv)
	if program == "" {
		t.Fatalf("%s is not set: run `make test`, which builds a Vault server for the tests", vaultEnv)
	}
	v := &vaultServer{cmd: exec.Command(program)}
	stdin, err := v.cmd.StdinPipe() // its end is the server's
	if err != nil {
		t.Fatal(err)
	}
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		v.cmd.Process.Kill()
		v.cmd.Wait()
	})
	var ready struct {
		Address string `json:"address"`
		Token   string `json:"token"`
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &ready) != nil {
		t.Fatalf("the Vault server said %q, %v", line, err)
	}
	go io.Copy(io.Discard, out)
	v.addr, v.token = ready.Address, ready.Token
	if v.Client, err = api.NewClient(&api.Config{Address: v.addr, HttpClient: &http.Client{Transport: &http.Transport{}}}); err != nil {
		t.Fatal(err)
	}
	v.SetToken(v.token)
	if err := v.Sys().Mount("secret", &api.MountInput{Type: "kv", Options: map[string]string{"version": "2"}}); err != nil {
		t.Fatal(err)
	}
	return v
}

// put writes a value into the key-value store.
func (v *vaultServer) put(t *testing.T, path, field, value string) {
	t.Helper()
	if _, err := v.KVv2("secret").Put(context.Background(), path, map[string]any{field: value}); err != nil {
		t.Fatal(err)
	}
}

// custodyTokens returns the accessors of live tokens that were minted for a step of run, or for the run itself.
func (v *vaultServer) custodyTokens(t *testing.T) []string {
	t.Helper()
	list, err := v.Logical().List("auth/token/accessors")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, accessor := range list.Data["keys"].([]any) {
		s, err := v.Auth().Token().LookupAccessor(accessor.(string))
		if err != nil {
			continue // it has just died
		}
		if meta, _ := s.Data["meta"].(map[string]any); meta["run"] != nil {
			found = append(found, fmt.Sprint(accessor, " ", meta))
		}
	}
	return found
}

func (d *door) useVault(v *vaultServer) {
	d.env = append(d.env, "VAULT_ADDR="+v.addr, "VAULT_TOKEN="+v.token)
}

// ops are the operations on secrets of a step, as NAME:OP, in order.
func (d *door) ops(run, step string) []string {
	d.Helper()
	var list []string
	for _, r := range d.records(run, "secret") {
		if r.Step == step {
			list = append(list, r.Secret.Name+":"+string(r.Secret.Op))
		}
	}
	return list
}

func (d *door) findings(run string) []audit.Finding {
	d.Helper()
	var list []audit.Finding
	for _, r := range d.records(run, "finding") {
		list = append(list, *r.Finding)
	}
	return list
}

// TestVaultSteps: each step gets a token of its own and what it binds; a step that
// lasts is renewed; all of it is dead when the step ends, as Vault says itself.
func TestVaultSteps(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	v.put(t, "agents/git", "token", "git-value-0123456789")
	v.put(t, "agents/db", "password", "db-value-9876543210")
	d := newDoor(t)
	d.useVault(v)
	d.project(`version: 1
secrets:
  git: {from: "vault:secret/data/agents/git#token", deliver: {env: GIT_TOKEN}}
  db:  {from: "vault:secret/data/agents/db#password", deliver: {file: db/password}}
steps:
  - {name: one, run: 'test "$GIT_TOKEN" = git-value-012345""6789 && ! test -e /run/secrets/db && sleep 75', secrets: [git]}
  - {name: two, run: 'test "$(cat /run/secrets/db/password)" = db-value-98765""43210 && test -z "$GIT_TOKEN" && ls /run/secrets', secrets: [db]}
`)
	d.must(0, "run", "-q")
	if left := v.custodyTokens(t); len(left) > 0 {
		t.Errorf("tokens that are alive after the run: %v", left)
	}
	one, two := d.ops("last", "one"), d.ops("last", "two")
	for _, want := range []string{"git:mint", "git:deliver"} {
		if !slices.Contains(one, want) {
			t.Errorf("the record of step one has no %s: %v", want, one)
		}
	}
	if !slices.Contains(two, "db:mint") || slices.Contains(strings.Split(strings.Join(two, ":"), ":"), "git") {
		t.Errorf("the record of step two: %v", two)
	}
	renewed, revoked := 0, map[string]time.Time{}
	accessors := map[string]string{}
	for _, r := range d.records("last", "secret") {
		switch s := r.Secret; s.Op {
		case audit.SecretRenew:
			renewed++
		case audit.SecretRevoke:
			revoked[r.Step] = r.Time
		case audit.SecretMint:
			accessors[r.Step] = s.Accessor
			if s.Accessor == "" || s.TTLNS <= 0 || s.TTLNS > int64(time.Minute) || s.Broker != "vault" {
				t.Errorf("a mint is recorded as %+v", *s)
			}
		}
	}
	if renewed < 2 || accessors["one"] == accessors["two"] || revoked["one"].IsZero() || revoked["two"].IsZero() {
		t.Errorf("renewed %d times; accessors %v; revoked %v", renewed, accessors, revoked)
	}
	ended := map[string]time.Time{} // of each step's last process
	for _, r := range d.records("last", "exit") {
		ended[r.Step] = r.Time
	}
	for step, at := range revoked {
		if took := at.Sub(ended[step]); ended[step].IsZero() || took > 10*time.Second {
			t.Errorf("step %s was revoked %s after its end", step, took)
		}
	}
	d.verified("last")
}

// TestVaultGone: without Vault a step does not start; when it goes away the step ends with its credentials.
func TestVaultGone(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	v.put(t, "agents/git", "token", "git-value-0123456789")
	d := newDoor(t)
	d.useVault(v)
	d.project(`version: 1
secrets: {git: {from: "vault:secret/data/agents/git#token", deliver: {env: GIT_TOKEN}}}
steps: [{name: long, run: "echo 'begun !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!!'; sleep 200; echo never", secrets: [git]}]
`)
	var stderr strings.Builder
	cmd, out := d.begunTo(&stderr, "run", "-q")
	began := time.Now()
	v.cmd.Process.Kill()
	rest, _ := io.ReadAll(out)
	cmd.Wait()
	if took := time.Since(began); took > 75*time.Second || cmd.ProcessState.ExitCode() != 125 || strings.Contains(string(rest), "never") {
		t.Errorf("after %s: exit %d, %q, %s", took, cmd.ProcessState.ExitCode(), rest, stderr.String())
	}
	d.contains(stderr.String(), "credentials expired")
	d.contains(strings.Join(d.ops("last", "long"), " "), "git:mint", "expire")
	d.verified("last")

	s := d.must(125, "run", "-q")
	d.contains(s.stderr, "git")
	if strings.Contains(s.stdout, "begun") {
		t.Error("the step started without Vault")
	}
}

// TestVaultKilled: after kill -9 nothing outlives its minute, and the next start
// revokes what is left.
func TestVaultKilled(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	v.put(t, "agents/git", "token", "git-value-0123456789")
	d := newDoor(t)
	d.useVault(v)
	d.project(`version: 1
secrets: {git: {from: "vault:secret/data/agents/git#token", deliver: {env: GIT_TOKEN}}}
steps: [{name: long, run: "echo 'begun !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!! !!!'; sleep 100", secrets: [git]}]
`)
	cmd, _ := d.begun("run", "-q")
	if alive := v.custodyTokens(t); len(alive) == 0 {
		t.Error("no token is alive while the step is")
	}
	cmd.Process.Kill()
	cmd.Wait()
	d.must(0, "runs")
	if left := v.custodyTokens(t); len(left) > 0 {
		t.Errorf("tokens that are alive after the next start: %v", left)
	}
	d.contains(strings.Join(d.ops("last", "long"), " "), "git:mint", "git:expire")
	d.verified("last")
}
