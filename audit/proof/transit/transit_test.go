package transit_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/transit"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/redact"
)

// server is a real Vault (hack/vault) on loopback.
type server struct {
	Address string `json:"address"`
	Token   string `json:"token"`
	stop    func()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func start(t testing.TB) *server {
	t.Helper()
	bin := os.Getenv("CUSTODY_TEST_VAULT")
	if bin == "" {
		t.Fatal("CUSTODY_TEST_VAULT does not name a Vault to test with: run hack/test, or set it to what hack/build-vault prints")
	}
	cmd := exec.Command(bin)
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	s := &server{}
	s.stop = func() {
		cmd.Process.Kill()
		stdin.Close()
		cmd.Wait()
	}
	t.Cleanup(s.stop)
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	must(t, err)
	must(t, json.Unmarshal(line, s))
	s.call(t, s.Token, "sys/mounts/transit", map[string]any{"type": "transit"})
	s.call(t, s.Token, "transit/keys/host", map[string]any{"type": "ed25519"})
	return s
}

// call makes a request without the tested code.
func (s *server) call(t testing.TB, token, path string, body map[string]any) map[string]any {
	t.Helper()
	text, err := json.Marshal(body)
	must(t, err)
	req, err := http.NewRequest("POST", s.Address+"/v1/"+path, bytes.NewReader(text))
	must(t, err)
	req.Header.Set("X-Vault-Token", token)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	var answer map[string]any
	json.NewDecoder(resp.Body).Decode(&answer)
	if resp.StatusCode >= 300 {
		t.Fatalf("%s: HTTP %d %v", path, resp.StatusCode, answer)
	}
	return answer
}

// policed is a token with the policy in the package's documentation.
func (s *server) policed(t testing.TB) string {
	t.Helper()
	s.call(t, s.Token, "sys/policies/acl/host-key", map[string]any{"policy": `
path "transit/keys/host" { capabilities = ["read"] }
path "transit/sign/host" { capabilities = ["update"] }
path "transit/keys/host/rotate" { capabilities = ["update"] }`})
	a := s.call(t, s.Token, "auth/token/create", map[string]any{"policies": []string{"host-key"}, "no_default_policy": true, "ttl": "1h"})
	return a["auth"].(map[string]any)["client_token"].(string)
}

func (s *server) source(t testing.TB, dir, token, name string) *transit.Source {
	t.Helper()
	env := map[string]string{"VAULT_ADDR": s.Address, "VAULT_TOKEN": token}
	src, err := transit.New(transit.Config{Name: name, Host: "custody-test", Dir: dir, Getenv: func(k string) string { return env[k] }})
	must(t, err)
	return src
}

// record writes a run of three segments.
func record(t testing.TB, k hostkey.Key) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "r-1")
	l, err := wal.Create(dir, wal.Options{Run: "r-1", Sealer: statement.NewSealer(k, statement.Facts{Tier: "qemu-tcg"})})
	must(t, err)
	rec := audit.NewRecorder(l, redact.New(make([]byte, 32)))
	for range 3 {
		_, err := rec.Record(t.Context(), audit.Event{Observer: audit.Host, Kind: audit.KindVM, VM: &audit.VM{Op: "boot"}})
		must(t, err)
		must(t, l.Rotate(t.Context()))
	}
	must(t, l.Close(t.Context(), wal.Sealed))
	return dir
}

func verify(t testing.TB, dir, public string, rotations ...[]byte) error {
	t.Helper()
	v, err := note.NewVerifier(public)
	must(t, err)
	e, err := proof.OpenDir(dir)
	must(t, err)
	defer e.Close()
	e.Rotations = rotations
	_, err = proof.Verify(t.Context(), e, proof.Trust{Keys: note.VerifierList(v)})
	return err
}

func TestSignAndRotate(t *testing.T) {
	t.Parallel()
	s := start(t)
	dir := filepath.Join(t.TempDir(), "keys")
	src := s.source(t, dir, s.policed(t), "host")
	first, err := src.Key(t.Context())
	must(t, err)
	v, err := first.Verifier()
	must(t, err)
	if first.Name() != "custody-test" || v.KeyHash() != first.KeyHash() {
		t.Errorf("%s, %08x, %s", first.Name(), first.KeyHash(), first.Public)
	}
	must(t, verify(t, record(t, first), first.Public))

	s.call(t, s.Token, "transit/keys/host/rotate", nil) // by an administrator, not by the host
	again, err := src.Key(t.Context())
	must(t, err)
	if again.Public != first.Public {
		t.Error("the key changed without a statement")
	}
	stated, err := src.Rotate(t.Context()) // uses that version
	must(t, err)
	second, err := src.Key(t.Context())
	must(t, err)
	all, err := hostkey.Retired(dir)
	must(t, err)
	if len(all) != 1 || all[0].Old != first.Public || all[0].New != second.Public {
		t.Errorf("rotations: %+v", all)
	}
	run := record(t, second)
	if err := verify(t, run, first.Public); !errors.Is(err, verdict.ErrUnknownKey) {
		t.Errorf("without the statement: %v", err)
	}
	must(t, verify(t, run, first.Public, stated))
	must(t, verify(t, record(t, first), first.Public)) // a run that continues with the old key
	_, err = src.Rotate(t.Context())                   // requests one
	must(t, err)
	third, err := src.Key(t.Context())
	must(t, err)
	if third.Public == second.Public {
		t.Error("the key did not change")
	}
}

func hint(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

func TestErrors(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.call(t, s.Token, "transit/keys/rsa", map[string]any{"type": "rsa-2048"})
	s.call(t, s.Token, "transit/keys/other", map[string]any{"type": "ed25519"})
	dir := t.TempDir()
	_, err := s.source(t, dir, s.Token, "nowhere").Key(t.Context())
	if !strings.Contains(hint(err), "vault write -f transit/keys/nowhere type=ed25519") {
		t.Errorf("no such key: %v: %s", err, hint(err))
	}
	if _, err = s.source(t, dir, s.Token, "rsa").Key(t.Context()); err == nil || !strings.Contains(err.Error(), "type=ed25519") {
		t.Errorf("another type: %v", err)
	}
	if _, err = s.source(t, dir, "wrong", "host").Key(t.Context()); !strings.Contains(hint(err), "token") || strings.Contains(err.Error(), "wrong") {
		t.Errorf("a wrong token: %v: %s", err, hint(err))
	}
	if _, err = s.source(t, dir, "", "host").Key(t.Context()); err == nil || !strings.Contains(err.Error(), "VAULT_TOKEN") {
		t.Errorf("no token: %v", err)
	}
	k, err := s.source(t, dir, s.Token, "host").Key(t.Context())
	must(t, err)
	var mismatch *transit.MismatchError
	if _, err = s.source(t, dir, s.Token, "other").Key(t.Context()); !errors.As(err, &mismatch) || mismatch.Hint() == "" {
		t.Errorf("another key than published: %v", err)
	}
	s.call(t, s.Token, "sys/seal", nil)
	began := time.Now()
	if _, err = k.Sign([]byte("x")); !strings.Contains(hint(err), "unseal") {
		t.Errorf("sealed: %v: %s", err, hint(err))
	}
	s.stop()
	if _, err = k.Sign([]byte("x")); !strings.Contains(hint(err), "running") {
		t.Errorf("gone: %v: %s", err, hint(err))
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("retries are not bounded: %s", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.source(t, dir, s.Token, "host").Key(ctx); err == nil {
		t.Error("cancelled")
	}
}

func TestConfig(t *testing.T) {
	for _, env := range []map[string]string{
		{"VAULT_ADDR": "http://vault.example:8200"}, {"VAULT_ADDR": "https://user:pass@vault.example"}, {"VAULT_ADDR": "vault"},
		{"VAULT_ADDR": "https://vault.example", "VAULT_SKIP_VERIFY": "1"}, {"VAULT_ADDR": "https://vault.example", "VAULT_CACERT": "/nowhere"},
	} {
		if _, err := transit.New(transit.Config{Name: "host", Getenv: func(k string) string { return env[k] }}); err == nil || strings.Contains(err.Error(), "pass") {
			t.Errorf("%v: %v", env, err)
		}
	}
	for _, c := range []transit.Config{{}, {Name: "a/b"}, {Name: "a?b"}, {Name: "a", Host: "a+b"}, {Name: "a", Host: "a b"}} {
		if _, err := transit.New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

// BenchmarkSign measures one signature, which every segment waits for.
func BenchmarkSign(b *testing.B) {
	s := start(b)
	k, err := s.source(b, b.TempDir(), s.Token, "host").Key(b.Context())
	must(b, err)
	for b.Loop() {
		_, err := k.Sign([]byte("custody manifest v1\n{}\n"))
		must(b, err)
	}
}
