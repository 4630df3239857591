package sandbox_test

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/secrets"
	"github.com/custody-project/custody/secrets/local"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/vmtest"
)

// token is a secret whose value changes.
type token struct{ dir string }

// next returns another value, which the secret has from now on, as sha256sum prints it.
func (k token) next(t *testing.T) (hash string) {
	t.Helper()
	value := rand.Text()
	must(t, os.WriteFile(filepath.Join(k.dir, "token"), []byte(value), 0o600))
	return fmt.Sprintf("%x", sha256.Sum256([]byte(value)))
}

// begin starts a machine as the sandbox of a run that has the secret.
func (k token) begin(t *testing.T, m vmm.Machine, run string, resumed *sandbox.Resumed) (*sandbox.Sandbox, *record) {
	t.Helper()
	r, red := &record{}, redact.New([]byte("key"))
	issuer := secrets.NewIssuer(secrets.Config{
		Run: run, Dir: k.dir, Recorder: r, Redactor: red, Brokers: map[string]secrets.Broker{"file": local.Broker{}},
		Bindings: []secrets.Binding{{Name: "token", From: "file:token", Deliver: secrets.Deliver{File: "token"}}},
	})
	t.Cleanup(func() { must(t, issuer.Close(t.Context())) })
	parts := sandbox.Parts{Recorder: r, Redactor: red, Secrets: issuer, Notice: func(text string) { t.Error(text) }}
	return beginWith(t, m, run, resumed, parts), r
}

// operations returns what has happened with the credentials of a step.
func operations(r *record, step string) (ops []audit.SecretOp) {
	for _, ev := range r.all() {
		if ev.Secret != nil && ev.Step == step {
			ops = append(ops, ev.Secret.Op)
		}
	}
	return ops
}

// follower is a step of several runs, whose command prints a hash of its secret.
type follower struct {
	*testing.T
	step  sandbox.Step
	ended chan error
}

func (f *follower) start(s *sandbox.Sandbox) {
	f.ended = make(chan error, 1)
	st := f.step
	go func() {
		_, err := s.Step(f.Context(), st)
		f.ended <- err
	}()
}

// attach continues the command of a suspended sandbox in s.
func (f *follower) attach(s *sandbox.Sandbox, r *record, secrets ...string) {
	f.Helper()
	f.step.Attach, f.step.Secrets = true, secrets
	before := starts(r)
	f.start(s)
	await(f.T, "the step is attached", func() bool { return starts(r) > before })
	must(f.T, suspension(s).Thaw(f.Context()))
}

// suspend suspends the sandbox, and counts what the command has printed.
func (f *follower) suspend(s *sandbox.Sandbox, r *record) {
	f.Helper()
	must(f.T, suspension(s).Suspend(f.Context()))
	if err := <-f.ended; !errors.Is(err, sandbox.ErrSuspended) {
		f.Fatalf("the step: %v", err)
	}
	f.step.Offsets[0] += int64(len(f.said(r)))
}

func (f *follower) said(r *record) string {
	return recordedFrom(f.T, r, f.step.Name, f.step.Offsets[0])
}

// expect waits for three lines of one text. A line before these can be an earlier text: the command had read it when it was suspended.
func (f *follower) expect(r *record, text string) {
	f.Helper()
	await(f.T, "it prints "+text, func() bool { return strings.Count(f.said(r), "\n") > 4 })
	lines := strings.Split(f.said(r), "\n")
	for _, line := range lines[1:4] {
		if line != text {
			f.Fatalf("it prints %q, expected %s", lines, text)
		}
	}
}

// TestAttachCredentials: the credentials of a step are revoked and removed when the sandbox is suspended. The step that attaches has new
// ones at the same path before its command runs again, in this machine or another.
func TestAttachCredentials(t *testing.T) {
	k := token{t.TempDir()}
	value := k.next(t)
	m := vmtest.Describe(t, vmtest.Driver(t), vmtest.Options{})
	s, r := k.begin(t, m, "r-first", nil)
	const script = `while :; do if [ -e /run/secrets/token ]; then set -- $(sha256sum /run/secrets/token); echo $1; else echo none; fi; sleep 0.1; done`
	f := &follower{T: t, step: sandbox.Step{
		Name: "follower", Argv: []string{"bash", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Session: true, Secrets: []string{"token"}, Live: true,
	}}
	f.start(s)
	f.expect(r, value)

	f.suspend(s, r)
	ops := []audit.SecretOp{audit.SecretMint, audit.SecretDeliver, audit.SecretRevoke}
	if got := operations(r, "follower"); !slices.Equal(got, ops) {
		t.Errorf("until it is suspended: %q, want %q", got, ops)
	}
	must(t, suspension(s).Continue(t.Context()))
	f.attach(s, r)
	f.expect(r, "none")

	f.suspend(s, r)
	value = k.next(t)
	must(t, suspension(s).Continue(t.Context()))
	f.attach(s, r, "token")
	f.expect(r, value)
	f.suspend(s, r)
	if got, want := operations(r, "follower"), slices.Concat(ops, ops); !slices.Equal(got, want) {
		t.Errorf("until it is suspended again: %q, want %q", got, want)
	}

	saved := keep(t, s, m) // which searches for the values
	value = k.next(t)
	second, r2 := k.begin(t, saved.another(t), "r-second", &saved.resumed)
	f.attach(second, r2, "token")
	f.expect(r2, value)
	await(t, "a renewal, after a proof that the command runs", func() bool {
		return slices.Contains(operations(r2, "follower"), audit.SecretRenew)
	})
	read := func(ev audit.Event) bool {
		return ev.File != nil && ev.File.Op == audit.FileRead && slices.Equal(ev.File.Secrets, []string{"token"})
	}
	if !slices.ContainsFunc(r2.all(), read) {
		t.Error("the sensors do not report that the new file is read")
	}
	exit, err := second.Step(t.Context(), sandbox.Step{Name: "other", Argv: []string{"true"}, Session: true, Attach: true, Secrets: []string{"token"}})
	if err != nil || exit.Code != 125 || !strings.Contains(exit.Error, "no command") {
		t.Errorf("attached to no command: %+v %v", exit, err)
	}
	if got := operations(r2, "other"); !slices.Equal(got, ops) {
		t.Errorf("attached to no command: %q, want %q", got, ops)
	}
	killCommands(t, second)
	if err := <-f.ended; err != nil {
		t.Error(err)
	}
	renew := func(op audit.SecretOp) bool { return op == audit.SecretRenew }
	if got := slices.DeleteFunc(operations(r2, "follower"), renew); !slices.Equal(got, ops) {
		t.Errorf("in the second run: %q, want %q", got, ops)
	}
}
