package agentkey_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/agentkey"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/redact"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func hint(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

// openSSH is OpenSSH's ssh-agent, run by the test.
type openSSH struct {
	*testing.T
	dir, socket string
	cmd         *exec.Cmd
}

func start(t *testing.T) *openSSH {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent") // a socket's path is short
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	a := &openSSH{T: t, dir: dir, socket: filepath.Join(dir, "sock")}
	a.serve()
	return a
}

func (a *openSSH) serve() {
	a.Helper()
	a.cmd = exec.Command("ssh-agent", "-D", "-a", a.socket)
	if err := a.cmd.Start(); err != nil {
		a.Fatalf("ssh-agent is needed (package openssh-client): %v", err)
	}
	a.Cleanup(a.stop)
	for range 1000 {
		if c, err := net.Dial("unix", a.socket); err == nil {
			c.Close()
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	a.Fatal("ssh-agent does not listen")
}

func (a *openSSH) stop() {
	a.cmd.Process.Kill()
	a.cmd.Wait()
	os.Remove(a.socket)
}

// key makes a key of a type.
func (a *openSSH) key(name, kind string) string {
	a.Helper()
	path := filepath.Join(a.dir, name)
	a.run("ssh-keygen", "-q", "-t", kind, "-N", "", "-C", name, "-f", path)
	return path
}

func (a *openSSH) run(args ...string) {
	a.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK="+a.socket)
	if out, err := cmd.CombinedOutput(); err != nil {
		a.Fatalf("%q: %v: %s", args, err, out)
	}
}

func (a *openSSH) source(dir string) *agentkey.Source {
	a.Helper()
	s, err := agentkey.New(agentkey.Config{Socket: a.socket, Dir: dir})
	must(a, err)
	return s
}

// verified records a run of two segments with k and verifies it.
func verified(t testing.TB, k hostkey.Key, public string, rotations ...[]byte) error {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "r-1")
	l, err := wal.Create(dir, wal.Options{Run: "r-1", Sealer: statement.NewSealer(k, statement.Facts{Tier: "none"})})
	must(t, err)
	rec := audit.NewRecorder(l, redact.New(make([]byte, 32)))
	for range 2 {
		_, err := rec.Record(t.Context(), audit.Event{Observer: audit.Host, Kind: audit.KindVM, VM: &audit.VM{Op: "boot"}})
		must(t, err)
		must(t, l.Rotate(t.Context()))
	}
	must(t, l.Close(t.Context(), wal.Sealed))
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
	a := start(t)
	dir := filepath.Join(t.TempDir(), "keys")
	s := a.source(dir)
	if _, err := s.Key(t.Context()); !strings.Contains(hint(err), "ssh-keygen -t ed25519") {
		t.Errorf("an empty agent: %v: %s", err, hint(err))
	}
	a.run("ssh-add", "-q", a.key("rsa", "rsa"))
	one := a.key("one", "ed25519")
	a.run("ssh-add", "-q", one)
	first, err := s.Key(t.Context())
	must(t, err)
	v, err := first.Verifier()
	must(t, err)
	if first.KeyHash() != v.KeyHash() || !strings.HasPrefix(first.Name(), "custody-") {
		t.Errorf("%s, %08x", first.Public, first.KeyHash())
	}
	must(t, verified(t, first, first.Public))

	if _, err := s.Rotate(t.Context()); err == nil || !strings.Contains(err.Error(), "0 Ed25519 keys") {
		t.Errorf("rotated to the same key: %v", err)
	}
	a.run("ssh-add", "-q", a.key("two", "ed25519"))
	if again, err := s.Key(t.Context()); err != nil || again.Public != first.Public {
		t.Errorf("the key changed without a statement: %v", err)
	}
	three := a.key("three", "ed25519")
	a.run("ssh-add", "-q", three)
	if _, err := s.Rotate(t.Context()); err == nil || !strings.Contains(err.Error(), "2 Ed25519 keys") {
		t.Errorf("one of two is taken: %v", err)
	}
	a.run("ssh-add", "-q", "-d", three)
	stated, err := s.Rotate(t.Context())
	must(t, err)
	second, err := a.source(dir).Key(t.Context())
	must(t, err)
	if second.Public == first.Public || second.Name() != first.Name() {
		t.Errorf("%s follows %s", second.Public, first.Public)
	}
	must(t, verified(t, second, first.Public, stated))
	if err := verified(t, second, first.Public); !errors.Is(err, verdict.ErrUnknownKey) {
		t.Errorf("without the statement: %v", err)
	}
	a.run("ssh-add", "-q", "-d", one) // the retired one
	if _, err := s.Key(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAway: an agent that is locked, gone, without the key or silent signs nothing, and signs again afterwards.
func TestAway(t *testing.T) {
	t.Parallel()
	a := start(t)
	dir := filepath.Join(t.TempDir(), "keys")
	one := a.key("one", "ed25519")
	a.run("ssh-add", "-q", one)
	k, err := a.source(dir).Key(t.Context())
	must(t, err)
	signs := func(want bool) {
		t.Helper()
		if _, err := k.Sign([]byte("text")); (err == nil) != want || err != nil && !strings.Contains(hint(err), "ssh-add") && !strings.Contains(hint(err), "running") {
			t.Errorf("signs: %v: %s", err, hint(err))
		}
	}
	signs(true)
	a.run("ssh-add", "-q", "-D")
	signs(false)
	a.run("ssh-add", "-q", a.key("other", "ed25519"))
	if _, err := a.source(dir).Key(t.Context()); !strings.Contains(hint(err), "ssh-add the host's key again") {
		t.Errorf("another key: %v: %s", err, hint(err))
	}
	a.run("ssh-add", "-q", one)
	signs(true)
	a.stop()
	signs(false)
	a.serve()
	a.run("ssh-add", "-q", one)
	signs(true)
	a.stop()
	silent, err := net.Listen("unix", a.socket)
	must(t, err)
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := a.source(dir).Key(ctx); err == nil {
		t.Error("an agent that does not answer has a key")
	}
}

func TestCheck(t *testing.T) {
	for path, want := range map[string]bool{"/run/agent": true, "": false, "agent": false, "/run/../agent": false, "/run/": false} {
		if err := agentkey.Check(path); (err == nil) != want {
			t.Errorf("%q: %v", path, err)
		}
	}
}
