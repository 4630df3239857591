package outside

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/privsep/privseptest"
	"github.com/custody-project/custody/secrets"
	"github.com/custody-project/custody/secrets/vault"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == Arg {
		os.Exit(Main())
	}
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// server is a real Vault on loopback.
type server struct {
	Address, Token string
	CA             string
}

func startVault(t *testing.T, args ...string) *server {
	t.Helper()
	program := os.Getenv("CUSTODY_TEST_VAULT")
	if program == "" {
		t.Fatal("CUSTODY_TEST_VAULT is not set: run `make test`, which builds a Vault server for the tests")
	}
	cmd := exec.Command(program, args...)
	stdin, err := cmd.StdinPipe() // its end is the server's
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		stdin.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	must(t, err)
	s := &server{}
	must(t, json.Unmarshal(line, s))
	return s
}

// call makes a call as root of Vault, and returns the status.
func (s *server) call(t *testing.T, method, path string, body any) int {
	t.Helper()
	text, err := json.Marshal(body)
	must(t, err)
	r, err := http.NewRequestWithContext(t.Context(), method, s.Address+"/v1/"+path, bytes.NewReader(text))
	must(t, err)
	r.Header.Set("X-Vault-Token", s.Token)
	answer, err := http.DefaultClient.Do(r)
	must(t, err)
	answer.Body.Close()
	return answer.StatusCode
}

// mounted adds a secret.
func (s *server) mounted(t *testing.T) *server {
	t.Helper()
	s.call(t, "POST", "sys/mounts/kv", map[string]any{"type": "kv", "options": map[string]string{"version": "1"}})
	if code := s.call(t, "POST", "kv/app", map[string]any{"password": "hunter2hunter2", "other": "hunter3hunter3"}); code >= 300 {
		t.Fatalf("a secret: HTTP %d", code)
	}
	return s
}

// alive reports whether Vault has a token.
func (s *server) alive(t *testing.T, accessor string) bool {
	t.Helper()
	return s.call(t, "POST", "auth/token/lookup-accessor", map[string]any{"accessor": accessor}) == http.StatusOK
}

func (s *server) config(t *testing.T) vault.Config {
	return vault.Config{Address: s.Address, Login: vault.LoginToken, Token: s.Token, Dir: filepath.Join(t.TempDir(), "leases")}
}

var password = secrets.Binding{Name: "password", From: "vault:kv/app#password", Deliver: secrets.Deliver{Env: "PASSWORD"}}

// open logs in for the run r-1.
func open(t *testing.T, c vault.Config) (*Login, error) {
	t.Helper()
	w, err := describe()
	must(t, err)
	w.Binds = append(w.Binds, privseptest.Worker("").Binds...) // what the program of a test may need
	l, err := openVault(t.Context(), w, c, "r-1", []secrets.Binding{password})
	if err == nil {
		t.Cleanup(func() { l.process.Close() })
	}
	return l, err
}

func mint(t *testing.T, l *Login) secrets.Grant {
	t.Helper()
	g, err := l.Mint(t.Context(), secrets.Request{Run: "r-1", Step: "main", Bindings: []secrets.Binding{password}, Limit: time.Hour})
	must(t, err)
	return g
}

func notesIn(t *testing.T, c vault.Config) int {
	t.Helper()
	entries, err := os.ReadDir(c.Dir)
	must(t, err)
	return len(entries)
}

// TestVault: a secret is minted, renewed and revoked in the process, which logs in with the contents of files that it cannot open.
func TestVault(t *testing.T) {
	t.Parallel()
	s := startVault(t).mounted(t)
	c := s.config(t)
	c.TokenFile = filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(c.TokenFile, []byte(c.Token+"\n"), 0o600))
	c.Token = ""
	l, err := open(t, c)
	must(t, err)
	g := mint(t, l)
	if got := g.Values(); len(got) != 1 || string(got["password"]) != "hunter2hunter2" {
		t.Errorf("the values are %q", got)
	}
	if !s.alive(t, g.Accessor()) || notesIn(t, c) != 1 {
		t.Errorf("token alive: %t; %d notes", s.alive(t, g.Accessor()), notesIn(t, c))
	}
	must(t, g.Renew(t.Context()))
	must(t, g.Revoke(t.Context()))
	if s.alive(t, g.Accessor()) || notesIn(t, c) != 0 {
		t.Errorf("revoked, token alive: %t; %d notes", s.alive(t, g.Accessor()), notesIn(t, c))
	}
	other := secrets.Binding{Name: "other", From: "vault:kv/app#other"}
	if _, err := l.Mint(t.Context(), secrets.Request{Step: "main", Bindings: []secrets.Binding{other}, Limit: time.Hour}); err == nil {
		t.Error("it has minted a secret of another run")
	}
	left := mint(t, l)
	must(t, l.Close(t.Context()))
	if s.alive(t, left.Accessor()) || notesIn(t, c) != 0 {
		t.Errorf("closed, token alive: %t; %d notes", s.alive(t, left.Accessor()), notesIn(t, c))
	}
}

// TestKilled: what a process that was killed leaves at Vault, the next one revokes, unless the run is alive.
func TestKilled(t *testing.T) {
	t.Parallel()
	s := startVault(t).mounted(t)
	c := s.config(t)
	l, err := open(t, c)
	must(t, err)
	g := mint(t, l)
	must(t, l.process.Kill())
	<-l.process.Done()
	if err := g.Renew(t.Context()); err == nil {
		t.Error("a grant of a process that has ended was renewed")
	}
	next, err := open(t, c)
	must(t, err)
	must(t, next.Sweep(t.Context(), func(string) bool { return true }))
	if !s.alive(t, g.Accessor()) {
		t.Error("the token of a live run was revoked")
	}
	must(t, next.Sweep(t.Context(), func(string) bool { return false }))
	if s.alive(t, g.Accessor()) || notesIn(t, c) != 0 {
		t.Errorf("swept, token alive: %t; %d notes", s.alive(t, g.Accessor()), notesIn(t, c))
	}
	must(t, next.Close(t.Context()))
}

// TestTrust: the process checks the certificate of Vault against the authority in a file, and against the host's own.
func TestTrust(t *testing.T) {
	t.Parallel()
	s := startVault(t, "-tls")
	c := s.config(t)
	if _, err := open(t, c); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate that no role has: %v", err)
	}
	c.CACert = filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(c.CACert, []byte(s.CA), 0o600))
	l, err := open(t, c)
	must(t, err)
	must(t, l.Close(t.Context()))
}

// TestAudit: the process follows Vault's audit log, which only root can read, and reports the use of a token.
func TestAudit(t *testing.T) {
	t.Parallel()
	s := startVault(t).mounted(t)
	c := s.config(t)
	c.Audit = filepath.Join(t.TempDir(), "audit.log")
	if code := s.call(t, "PUT", "sys/audit/file", map[string]any{"type": "file", "options": map[string]string{"file_path": c.Audit, "hmac_accessor": "false"}}); code >= 300 {
		t.Fatalf("an audit log: HTTP %d", code)
	}
	l, err := open(t, c)
	must(t, err)
	g := mint(t, l)
	f, err := os.OpenFile(c.Audit, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer f.Close()
	_, err = fmt.Fprintf(f, `{"auth":{"accessor":%q},"request":{"id":"x","operation":"read","path":"kv/app","remote_address":"192.0.2.1"}}`+"\n", g.Accessor())
	must(t, err)
	if what, ok := <-g.Misuse(); !ok || !strings.Contains(what, "192.0.2.1") {
		t.Errorf("reported: %q", what)
	}
	must(t, l.Close(t.Context()))
}

// TestPlace: a process that was taken over changes no note but those of its run, reads none, and gets no file that the login does not need.
func TestPlace(t *testing.T) {
	t.Parallel()
	c := vault.Config{Address: "https://vault.example:8200", Login: vault.LoginToken, Dir: t.TempDir()}
	other := filepath.Join(c.Dir, "other.vault.json")
	must(t, os.WriteFile(other, []byte(`{"run":"r-2","vault":"https://vault.example:8200 "}`), 0o600))
	note := func(name, run string, policies ...string) save {
		return save{name, vault.Note{Vault: c.Address + " ", Run: run, Policies: policies}}
	}
	const good, policy = "abc.vault.json", "custody-step-abc"
	for _, at := range []struct {
		what, call string
		args       any
		refused    string
	}{
		{"a note of its run", callSave, note(good, "r-1", policy), ""},
		{"the note again", callSave, note(good, "r-1", policy), ""},
		{"its removal", callRemove, noteName{good}, ""},
		{"a note of another run", callSave, note(good, "r-2", policy), "not one on this run"},
		{"a note elsewhere", callSave, note("../abc.vault.json", "r-1", policy), "cannot have the name"},
		{"a draft", callSave, note(".draft-1.vault.json", "r-1", policy), "cannot have the name"},
		{"another kind of file", callSave, note("host.yaml", "r-1", policy), "cannot have the name"},
		{"a policy of Vault's", callSave, note(good, "r-1", "admin"), "not a step's"},
		{"a policy outside of Vault's policies", callSave, note(good, "r-1", "custody-step-/../../../x"), "not a step's"},
		{"the removal of another run's note", callRemove, noteName{filepath.Base(other)}, "not one of this process"},
		{"the notes of other runs", callNotes, none{}, "not to sweep"},
		{"an audit log that is not configured", callAudit, fileID{}, "no audit log"},
		{"a socket that is not configured", callDial, none{}, "not a unix socket"},
		{"a credential that is not configured", callCredential, none{}, "no such file"},
	} {
		p := privseptest.Connect(t, newPlace(vault.Here(c), c, "r-1").handlers())
		if at.call == callRemove && at.refused == "" {
			_, err := p.Call(t.Context(), callSave, note(good, "r-1", policy), nil)
			must(t, err)
		}
		_, err := p.Call(t.Context(), at.call, at.args, nil)
		if at.refused == "" && err != nil || at.refused != "" && (err == nil || !strings.Contains(err.Error(), at.refused)) {
			t.Errorf("%s: %v", at.what, err)
		}
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}

// TestNotes: a process that is to sweep gets the notes of dead runs only, and can remove these.
func TestNotes(t *testing.T) {
	t.Parallel()
	c := vault.Config{Address: "https://vault.example:8200", Login: vault.LoginToken, Dir: t.TempDir()}
	for name, run := range map[string]string{"dead": "r-1", "live": "r-2"} {
		must(t, vault.Here(c).SaveNote(name+".vault.json", vault.Note{Vault: c.Address + " ", Run: run}))
	}
	p := newPlace(vault.Here(c), c, "")
	p.allow(func(run string) bool { return run == "r-2" })
	a := &away{root: privseptest.Connect(t, p.handlers())}
	got, err := a.Notes()
	must(t, err)
	if _, ok := got["dead.vault.json"]; !ok || len(got) != 1 {
		t.Errorf("got %v", got)
	}
	must(t, a.RemoveNote("dead.vault.json"))
	if err := a.RemoveNote("live.vault.json"); err == nil {
		t.Error("the note of a live run was removed")
	}
	if err := a.SaveNote("abc.vault.json", vault.Note{Vault: c.Address + " "}); err == nil {
		t.Error("a process that sweeps has saved a note")
	}
}

// TestNotOpen: without a login there is nothing to mint, and a process logs in once.
func TestNotOpen(t *testing.T) {
	t.Parallel()
	b := &broker{}
	conn := privseptest.Connect(t, b.handlers())
	for name := range b.handlers() {
		if _, err := conn.Call(t.Context(), name, none{}, nil); err == nil {
			t.Errorf("%s succeeds without a login", name)
		}
	}
	b.used = true
	f, err := privsep.Memory("login", order{})
	must(t, err)
	defer f.Close()
	if _, err := conn.Call(context.Background(), callOpen, none{}, nil, f); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second login: %v", err)
	}
}
