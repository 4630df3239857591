package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/hostkey/remote"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/store"
)

const (
	keylessEnv = "CUSTODY_TEST_KEYLESS" // what the child does without the key, and its home
	keylessUID = 61007
	sandboxRun = "r-01m7xwjm28tv7cnff0wa831wp1"
)

// keyless opens the home of a process whose descriptor 3 leads to the one with the key, and does what the test names.
func keyless(do, dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	socket, err := privsep.Socket(os.NewFile(3, "key"))
	if err != nil {
		return err
	}
	conn := privsep.New(socket, nil)
	ran := make(chan error, 1)
	go func() { ran <- conn.Run(ctx) }()
	h, err := host.Open(dir)
	if err != nil {
		return err
	}
	h.Keys().Use(remote.NewClient(conn))
	err = map[string]func(context.Context, *host.Host) error{
		"serve": serveWithoutKey, "die": dieWithoutKey, "tidy": func(ctx context.Context, h *host.Host) error {
			return h.Tidy(ctx, func(text string) { fmt.Println(text) })
		}, "trespass": trespass, "delete": deleteWithoutKey,
	}[do](ctx, h)
	conn.Close()
	return errors.Join(err, <-ran)
}

func testRedactor() *redact.Redactor { return redact.New([]byte("0123456789abcdef0123456789abcdef")) }

// serveWithoutKey writes an access log, proves it, and exports it as a bundle.
func serveWithoutKey(ctx context.Context, h *host.Host) error {
	log := h.AccessLog(testRedactor(), "test")
	for range 5 {
		if err := log.Record(ctx, audit.Access{Who: "ann", Action: "view", Verdict: audit.Allow}); err != nil {
			return err
		}
	}
	if err := log.Close(); err != nil {
		return err
	}
	run, err := onlyAccessLog(ctx, h)
	if err != nil {
		return err
	}
	trusted, err := h.Keys().Trusted()
	if err != nil {
		return err
	}
	e, done, err := h.Proofs().OfRun(ctx, "", run)
	if err != nil {
		return err
	}
	if _, err := proof.Verify(ctx, e, proof.Trust{Keys: trusted}); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := errors.Join(done(), h.Proofs().Bundle(ctx, &b, "", run, host.BundleOptions{By: "ann"})); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(h.Dir, "bundle"), b.Bytes(), 0o600)
}

// onlyAccessLog returns the name of the one access log in the store.
func onlyAccessLog(ctx context.Context, h *host.Host) (string, error) {
	st, err := h.Store(ctx)
	if err != nil {
		return "", err
	}
	runs, err := st.Runs(ctx, store.Filter{Class: store.Accesses})
	if err == nil && len(runs) != 1 {
		err = fmt.Errorf("access logs: %v, want one", runs)
	}
	if err = errors.Join(err, st.Close()); err != nil {
		return "", err
	}
	return runs[0].ID, nil
}

// dieWithoutKey is killed while an access log is open.
func dieWithoutKey(ctx context.Context, h *host.Host) error {
	if err := h.AccessLog(testRedactor(), "test").Record(ctx, audit.Access{Who: "ann", Action: "view", Verdict: audit.Allow}); err != nil {
		return err
	}
	return unix.Kill(os.Getpid(), unix.SIGKILL)
}

// trespass tries what a process without the key cannot do.
func trespass(ctx context.Context, h *host.Host) error {
	var none *host.KeyElsewhereError
	if _, err := h.Keys().Rotate(ctx, ""); !errors.As(err, &none) || none.Hint() != "run it as root" {
		return fmt.Errorf("rotated: %w", err)
	}
	run, err := h.Begin(ctx, host.RunOptions{ID: sandboxRun, Redactor: testRedactor(), Mode: wal.Strict, KeyWait: time.Millisecond})
	if err != nil {
		return err
	}
	if err, _ := run.Close(ctx, wal.Sealed); err == nil || !strings.Contains(err.Error(), "does not write this run") {
		return fmt.Errorf("the segments of a sandbox's run: %w", err)
	}
	return nil
}

// deleteWithoutKey deletes what is older than delete_after.
func deleteWithoutKey(ctx context.Context, h *host.Host) error {
	p, err := h.Retention().Prune(ctx, false)
	if err != nil || len(p.Deleted) != 1 {
		return fmt.Errorf("deleted %v, kept %v: %w", p.Deleted, p.KeptRuns, err)
	}
	all, err := h.Deletions().All(ctx)
	if err != nil || len(all) != 1 || all[0].Run != p.Deleted[0] {
		return fmt.Errorf("deletions %v: %w", all, err)
	}
	return nil
}

// separated is a host whose key only root has, and the rest of which another user runs.
type separated struct {
	*testing.T
	owner *host.Host // of the key
	home  string     // of the other user
	state string
}

func separate(t *testing.T, settings string) separated {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o711))
	must(t, os.Chmod(dir, 0o711))
	s := separated{T: t, home: filepath.Join(dir, "home"), state: filepath.Join(dir, "signed")}
	for _, home := range []string{filepath.Join(dir, "owner"), s.home} {
		must(t, os.Mkdir(home, 0o700))
		must(t, os.WriteFile(filepath.Join(home, host.ConfigFile), []byte("version: 1\n"+settings), 0o644))
	}
	must(t, os.Chown(s.home, keylessUID, keylessUID))
	var err error
	s.owner, err = host.Open(filepath.Join(dir, "owner"))
	must(t, err)
	s.publish()
	return s
}

// publish copies the public half of the key to where the other user reads it, and makes that user's key of tags.
func (s separated) publish() {
	public, err := s.owner.Keys().Public()
	must(s, err)
	must(s, os.MkdirAll(filepath.Join(s.home, "keys"), 0o755))
	must(s, os.WriteFile(filepath.Join(s.home, "keys", hostkey.PublicFile), []byte(public+"\n"), 0o644))
	tags := filepath.Join(s.home, "keys", "tag.key")
	must(s, os.WriteFile(tags, make([]byte, 32), 0o600))
	must(s, os.Chown(tags, keylessUID, keylessUID))
}

// do has the other user do something, with a server that is started for it. It returns what that process printed.
func (s separated) do(what string) (string, error) {
	s.Helper()
	server, err := s.owner.Keys().Server(s.Context(), s.state)
	must(s, err)
	here, there, err := privsep.Pair()
	must(s, err)
	conn := privsep.New(here, server.Handlers())
	ran := make(chan error, 1)
	go func() { ran <- conn.Run(s.Context()) }()
	child := exec.CommandContext(s.Context(), "/proc/self/exe")
	child.Env = append(os.Environ(), keylessEnv+"="+what+" "+s.home)
	child.ExtraFiles = []*os.File{there}
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: keylessUID, Gid: keylessUID}}
	out, err := child.CombinedOutput()
	there.Close()
	conn.Close()
	must(s, errors.Join(<-ran, server.Close()))
	return string(out), err
}

// did fails the test unless the other user could do something.
func (s separated) did(what string) string {
	s.Helper()
	out, err := s.do(what)
	if err != nil {
		s.Fatalf("%s: %v\n%s", what, err, out)
	}
	return out
}

// TestKeyElsewhere: a process that is not root and has no key writes, seals, logs, proves and deletes a record, which anyone can verify with
// the host's public key.
func TestKeyElsewhere(t *testing.T) {
	s := separate(t, "delete_after: 1ms\n")
	s.did("serve")
	public, err := s.owner.Keys().Public()
	must(t, err)
	v, err := note.NewVerifier(public)
	must(t, err)
	e, err := proof.OpenBundle(filepath.Join(s.home, "bundle"))
	must(t, err)
	defer e.Close()
	if _, err := proof.Verify(t.Context(), e, proof.Trust{Keys: note.VerifierList(v)}); err != nil {
		t.Error(err)
	}
	s.did("delete")
	s.did("trespass")
	if _, err := os.Stat(filepath.Join(s.home, "keys", hostkey.KeyFile)); !os.IsNotExist(err) {
		t.Errorf("the user has a private key: %v", err)
	}
}

// TestKeyElsewhereKilled: the access log of a process without the key that was killed is closed by the next one, also one whose last
// signature it did not store.
func TestKeyElsewhereKilled(t *testing.T) {
	s := separate(t, "")
	if out, err := s.do("die"); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("%v\n%s", err, out)
	}
	if out := s.did("tidy"); !strings.Contains(out, "was interrupted; its record is closed now") {
		t.Error(out)
	}
	left, err := filepath.Glob(filepath.Join(s.home, "runs", "a-*", "*"+wal.ManifestSuffix))
	if err != nil || len(left) == 0 {
		t.Fatalf("manifests %v, %v", left, err)
	}
	must(t, os.Remove(left[len(left)-1]))
	must(t, os.Remove(filepath.Join(filepath.Dir(left[0]), "shipped")))
	if out := s.did("tidy"); out != "" {
		t.Errorf("it was signed as closed before: %s", out)
	}
	if _, err := os.Stat(left[len(left)-1]); err != nil {
		t.Error(err)
	}
}

// TestKeyElsewhereRotated: after a rotation by root the other process signs with the new key.
func TestKeyElsewhereRotated(t *testing.T) {
	s := separate(t, "")
	s.did("serve")
	_, err := s.owner.Keys().Rotate(t.Context(), "")
	must(t, err)
	must(t, os.RemoveAll(filepath.Join(s.home, "keys", "rotations")))
	must(t, os.CopyFS(filepath.Join(s.home, "keys", "rotations"), os.DirFS(filepath.Join(s.owner.Dir, "keys", "rotations"))))
	must(t, exec.Command("chmod", "-R", "a+rX", filepath.Join(s.home, "keys")).Run())
	s.publish()
	if out, err := s.do("die"); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("%v\n%s", err, out)
	}
	s.did("tidy")
}
