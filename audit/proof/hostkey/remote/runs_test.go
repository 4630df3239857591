package remote

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/hostlog"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/redact"
)

// accessLog returns the name of an access log that begins at a time.
func accessLog(t testing.TB, at time.Time) string {
	t.Helper()
	id, err := ulid.New(ulid.Timestamp(at), rand.Reader)
	must(t, err)
	return "a-" + strings.ToLower(id.String())
}

var (
	facts = statement.Facts{Tenant: "acme", RulesetDigest: "sha256:aa"}
	first = sealer.Segment{First: 1, Last: 5, Count: 5, Bytes: 100, Root: merkle.Hash{1}}
	other = sealer.Segment{First: 1, Last: 5, Count: 5, Bytes: 100, Root: merkle.Hash{9}}
	last  = sealer.Segment{Index: 1, First: 6, Last: 5, Closing: wal.Sealed}
)

// seal makes the call of a compromised caller.
func (f *fixture) seal(c sealCall) (manifest []byte, err error) {
	_, err = f.conn.Call(f.Context(), callSeal, c, &manifest)
	return manifest, err
}

// TestOwnRuns: a segment of a run that the caller writes is signed once, also when the server has been restarted in between.
func TestOwnRuns(t *testing.T) {
	f := start(t)
	run := accessLog(t, time.Now())
	signed, err := f.seal(sealCall{run, facts, first})
	must(t, err)
	m, err := statement.OpenManifest(signed, note.VerifierList(f.verifier()))
	if err != nil || m.Run != run || m.Facts != facts || time.Since(m.SealedAt) > time.Hour {
		t.Errorf("%+v, %v", m, err)
	}
	check := func(want []byte, of sealer.Segment) {
		t.Helper()
		if again, err := f.seal(sealCall{run, facts, of}); err != nil || string(again) != string(want) {
			t.Errorf("again: %q, %v", again, err)
		}
		if m, err := f.seal(sealCall{run, facts, other}); err == nil {
			t.Errorf("a second version was signed: %q", m)
		}
		var a lastAnswer
		if _, err := f.conn.Call(t.Context(), callLast, lastCall{run}, &a); err != nil || string(a.Manifest) != string(want) {
			t.Errorf("last: %q, %v", a.Manifest, err)
		}
	}
	check(signed, first)
	f.restart()
	check(signed, first)
	signed, err = f.seal(sealCall{run, facts, last})
	must(t, err)
	check(signed, last)
	f.restart()
	check(signed, last)
	f.server.now = func() time.Time { return time.Now().Add(2 * maxAge) } // the next run removes what is left of this one
	_, err = f.seal(sealCall{accessLog(t, f.server.now()), facts, first})
	must(t, err)
	if _, err := os.Stat(f.server.manifestPath(run)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the manifest of a closed run stays: %v", err)
	}
	f.restart()
	f.server.now = func() time.Time { return time.Now().Add(2 * maxAge) }
	if _, err := f.seal(sealCall{run, facts, other}); err == nil || !strings.Contains(err.Error(), errBegun.Error()) {
		t.Errorf("the run, begun a second time: %v", err)
	}
}

// TestOtherRuns: runs that the caller does not write, or that state what they cannot know, are not signed.
func TestOtherRuns(t *testing.T) {
	f := start(t)
	now := time.Now()
	run := accessLog(t, now)
	for name, c := range map[string]struct {
		run   string
		facts statement.Facts
		want  error
	}{
		"a sandbox's run":     {sandboxRun, facts, errNotYours},
		"without a name":      {"", facts, errNotYours},
		"only a prefix":       {"a-", facts, errNotYours},
		"a path":              {"a-../../" + run[2:], facts, errNotYours},
		"a path in the name":  {run[:20] + "/../a", facts, errNotYours},
		"capital letters":     {"a-" + strings.ToUpper(run[2:]), facts, errNotYours},
		"an earlier time":     {accessLog(t, now.Add(-2*maxAge)), facts, errBegun},
		"a later time":        {accessLog(t, now.Add(time.Hour)), facts, errBegun},
		"another tenant":      {run, statement.Facts{Tenant: "beta"}, errFacts},
		"no tenant":           {run, statement.Facts{}, errFacts},
		"a sandbox's tier":    {run, statement.Facts{Tenant: "acme", Tier: "qemu-kvm"}, errFacts},
		"a sandbox's policy":  {run, statement.Facts{Tenant: "acme", PolicyDigest: "sha256:aa"}, errFacts},
		"a long rule digest":  {run, statement.Facts{Tenant: "acme", RulesetDigest: strings.Repeat("a", maxDigest+1)}, errFacts},
		"a template's digest": {run, statement.Facts{Tenant: "acme", TemplateDigest: "sha256:aa"}, errFacts},
	} {
		t.Run(name, func(t *testing.T) {
			if m, err := f.seal(sealCall{c.run, c.facts, first}); err == nil || !strings.Contains(err.Error(), c.want.Error()) {
				t.Errorf("got %q, %v; want %v", m, err, c.want)
			}
		})
	}
	if left, err := os.ReadDir(filepath.Join(f.options.Dir, runsDir)); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	f.options.Prefix = ""
	f.restart()
	if m, err := f.seal(sealCall{run, facts, first}); err == nil {
		t.Errorf("a caller that writes no runs: %q", m)
	}
}

// TestManyRuns: a caller cannot fill the disk with runs that it does not close.
func TestManyRuns(t *testing.T) {
	f := start(t)
	for range maxRuns {
		must(t, os.WriteFile(f.server.manifestPath(accessLog(t, time.Now())), nil, 0o600))
	}
	if _, err := f.seal(sealCall{accessLog(t, time.Now()), facts, first}); err == nil || !strings.Contains(err.Error(), "not closed") {
		t.Errorf("one more: %v", err)
	}
}

// TestLogs: a process without the key writes a log and enters it into the host's log, whose checkpoints verify. A second process whose log
// was forked from it publishes nothing.
func TestLogs(t *testing.T) {
	f := start(t)
	client := NewClient(f.conn)
	key, err := client.Key(t.Context())
	must(t, err)
	if key.Public != f.key.Public || key.Name() != f.key.Name() || key.KeyHash() != f.key.KeyHash() {
		t.Errorf("key %+v", key)
	}
	run := accessLog(t, time.Now())
	dir := filepath.Join(t.TempDir(), run)
	l, err := wal.Create(dir, wal.Options{Run: run, Sealer: client.Sealer(run, facts), SegmentAge: time.Hour})
	must(t, err)
	red := redact.New([]byte("0123456789abcdef0123456789abcdef"))
	for i := range 3 {
		sealed, err := red.Seal(&audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindAccess,
			Access: &audit.Access{Who: fmt.Sprint("user ", i), Action: "view", Verdict: audit.Allow}})
		must(t, err)
		_, err = l.Append(t.Context(), sealed)
		must(t, err)
		must(t, l.Rotate(t.Context()))
	}
	must(t, l.Close(t.Context(), wal.Sealed))
	e, err := proof.OpenDir(dir)
	must(t, err)
	defer e.Close()
	report, err := proof.Verify(t.Context(), e, proof.Trust{Keys: note.VerifierList(f.verifier()), Unlogged: true})
	if err != nil || report.Records != 3 {
		t.Errorf("%d records, %v", report.Records, err)
	}

	open := func(dir string) *hostlog.Log {
		log, err := hostlog.Open(t.Context(), hostlog.Options{Dir: dir, Signer: key.Signer, Verifier: f.verifier()})
		must(t, err)
		return log
	}
	publish := func(log *hostlog.Log, entry string) error {
		index, err := log.Add(t.Context(), []byte(entry))
		must(t, err)
		_, err = log.Publish(t.Context(), index)
		return err
	}
	here, there := filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "log")
	log := open(here)
	for i := range 5 {
		must(t, publish(log, fmt.Sprint("entry ", i)))
	}
	must(t, log.Close(t.Context()))
	must(t, os.CopyFS(there, os.DirFS(here)))
	kept, err := os.ReadFile(here + ".checkpoints")
	must(t, err)
	must(t, os.WriteFile(there+".checkpoints", kept, 0o600))
	f.restart()
	client = NewClient(f.conn) // knows nothing of what was signed
	key, err = client.Key(t.Context())
	must(t, err)
	log, fork := open(here), open(there)
	must(t, publish(log, "this way"))
	must(t, publish(log, "and on"))
	for _, entry := range []string{"that way", "and on", "and on and on"} {
		if err := publish(fork, entry); err == nil {
			t.Errorf("a checkpoint of the fork was published after %q", entry)
		}
	}
	must(t, publish(log, "still"))
	must(t, errors.Join(log.Close(t.Context()), fork.Close(t.Context())))
	r, err := hostlog.OpenReader(here, f.verifier())
	must(t, err)
	must(t, r.Check(t.Context()))
}

// FuzzCall: no call has more signed than what the rules allow, and none ends the process.
func FuzzCall(f *testing.F) {
	key := newKey(f, "custody-test")
	v, err := key.Verifier()
	must(f, err)
	s, err := NewServer(Options{
		Dir: filepath.Join(f.TempDir(), "signed"), DeleteAfter: time.Hour, Prefix: "a-",
		Key: func() (hostkey.Key, error) { return key, nil }, Trusted: func() (note.Verifiers, error) { return note.VerifierList(v), nil },
	})
	must(f, err)
	defer s.Close()
	log := (&tree{name: "custody-test"}).add(f, "a", "b")
	f.Add(log.checkpoint(f, 0).Text, uint64(0), []byte(nil), "a-01m7xwjm28tv7cnff0wa831wp1")
	f.Add("custody trailer v1\n{\"v\":1}\n", uint64(1), closed(f, key, time.Now(), wal.Sealed), sandboxRun)
	f.Add("custody manifest v1\n{\"v\":1}\n", uint64(1), []byte("x"), "a-..")
	f.Add("custody deletion v1\n{\"v\":1,\"run\":\"r-1\"}\n", uint64(1), []byte("x\n\n"), "a-/")
	f.Fuzz(func(t *testing.T, text string, from uint64, manifest []byte, run string) {
		before := s.last
		got, _, err := s.sign(t.Context(), signCall{Key: key.KeyHash(), Text: text, From: from, Manifest: manifest})
		if a, ok := got.(signAnswer); ok && err == nil && a.Signature != nil {
			switch stated, err := statement.Parse(text); v := stated.(type) {
			case statement.Checkpoint:
				if v.Origin != "custody-test" || v.Size < before.Size || v.Size == before.Size && v.Root != before.Root {
					t.Errorf("signed the checkpoint %q after %+v", text, before)
				}
			case statement.Manifest, statement.Erasure, statement.Rotation, statement.Host:
				t.Errorf("signed %q", text)
			case nil:
				t.Errorf("signed %q: %v", text, err)
			}
		}
		_, _, _ = s.seal(t.Context(), sealCall{Run: run, Segment: sealer.Segment{First: 1, Last: from, Count: from}})
		_, _, _ = s.lastManifest(t.Context(), lastCall{run})
	})
}
