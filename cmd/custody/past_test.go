package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/storage/posix"
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/redact"
)

// TestRewrittenPast: someone who has a host's key and disk writes an old run again under the same id, and appends it to the
// same log. The witness, a real one, cosigns that; who demands the witness or kept a checkpoint refuses it, a monitor
// finds it, and a witness that reads the log does not cosign.
func TestRewrittenPast(t *testing.T) {
	t.Parallel()
	d, other := newDoor(t), newDoor(t)
	hostKey := strings.TrimSpace(d.must(0, "key", "show").stdout)
	witness := strings.TrimSpace(other.must(0, "witness", "key", "witness.example").stdout)
	address := freePort(t)
	served := other.serve("witness", "serve", "--listen", address, "--log", hostKey)
	awaitPort(t, address)
	d.write(filepath.Join(d.home, "host.yaml"), "version: 1\nlog: {wait: 3s, witnesses: [{key: \""+witness+"\", url: \"http://"+address+"\"}]}\n")
	h, err := host.Open(d.home)
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(d.home, "log")
	monitor := func(code int, more ...string) string {
		t.Helper()
		return other.must(code, append([]string{"monitor", log, "--key", hostKey}, more...)...).stdout
	}

	genuine := pastRun(t, h, host.NewRunID(time.Now().AddDate(-1, 0, 0)))
	kept, bundle := filepath.Join(d.dir, "kept"), filepath.Join(d.dir, "genuine.tar")
	other.contains(monitor(0), "one history")
	var read struct{ Checkpoint string }
	if err := json.Unmarshal([]byte(monitor(0, "--json")), &read); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept, []byte(read.Checkpoint), 0o600); err != nil { // what a monitor has read is what a verifier may keep
		t.Fatal(err)
	}
	d.must(0, "bundle", genuine, "-o", bundle)
	auditor := []string{"--key", hostKey, "--witness", witness}
	twice := append([]string{"verify", bundle, "--since", kept}, append(auditor, auditor...)...) // each key counts once
	other.contains(other.must(0, twice...).stdout, "witnesses witness.example\n")
	other.contains(other.must(2, append(twice, "--quorum", "2")...).stderr, "--quorum 2 of 1 witnesses")
	said := other.must(0, append([]string{"verify", bundle, "--since", kept}, auditor...)...)
	other.contains(said.stdout, "in log    by ", "after it was sealed", "since     the log went on")

	// The run of a year ago as it is to have been.
	forged := filepath.Join(t.TempDir(), genuine)
	forge(t, h, forged, genuine)
	forceLog(t, h, log, forged)
	pastRun(t, h, host.NewRunID(time.Now())) // the next run has the log published and cosigned
	other.contains(monitor(1), "ALARM entry-twice", genuine)
	other.contains(monitor(1, "--json"), `"name":"entry-twice"`)
	other.contains(d.custody("fsck").stdout, "log-entry-twice")

	reader, err := h.ManifestLog().Reader()
	if err != nil {
		t.Fatal(err)
	}
	key, err := h.Keys().Signing()
	if err != nil {
		t.Fatal(err)
	}
	since, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(d.dir, "forged.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := proof.WriteBundle(t.Context(), out, forged, proof.BundleOptions{HostKey: key.Public, Signer: key, Log: reader, Since: since}); err != nil {
		t.Fatal(err)
	}
	other.must(0, "verify", out.Name(), "--key", hostKey) // it is signed and in the log: see docs/verify.md
	other.contains(other.must(66, append([]string{"verify", out.Name(), "--detailed"}, auditor...)...).stderr, "first witnessed")
	other.contains(other.must(65, append([]string{"verify", out.Name(), "--detailed", "--since", kept}, auditor...)...).stderr, "younger than it states")
	other.must(0, append([]string{"verify", bundle, "--since", kept}, auditor...)...)

	// The same witness with its eyes open.
	served.Process.Signal(os.Interrupt)
	served.Wait()
	name, _, _ := strings.Cut(hostKey, "+")
	other.serve("witness", "serve", "--listen", address, "--log", hostKey, "--entries", name+"="+log)
	awaitPort(t, address)
	blind := host.NewRunID(time.Now())
	if _, stored := makeRun(t, h, blind); stored == nil || !strings.Contains(stored.Error(), "two histories") {
		t.Errorf("it is cosigned: %v", stored)
	}
}

// makeRun writes a run and ends it.
func makeRun(t *testing.T, h *host.Host, id string) (recorded, stored error) {
	t.Helper()
	run, err := h.Begin(t.Context(), host.RunOptions{ID: id, Mode: wal.Strict, Facts: statement.Facts{Tier: "none"}, Redactor: redact.New(make([]byte, 32))})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := run.Record(t.Context(), pastEvent("what happened\n")); err != nil {
			t.Fatal(err)
		}
	}
	recorded, stored = run.Close(t.Context(), wal.Sealed)
	return recorded, errors.Join(stored, h.Shipping().Ship(t.Context(), false, func(string) {}))
}

func pastRun(t *testing.T, h *host.Host, id string) string {
	t.Helper()
	if recorded, stored := makeRun(t, h, id); recorded != nil || stored != nil {
		t.Fatal(recorded, stored)
	}
	return id
}

func pastEvent(text string) audit.Event {
	return audit.Event{Time: time.Now().UTC(), Observer: audit.Guest, Kind: audit.KindOutput, Output: &audit.Output{Stream: "stdout", Text: audit.Text(text)}}
}

// forge writes a record of a year ago with the host's key.
func forge(t *testing.T, h *host.Host, dir, run string) {
	t.Helper()
	key, err := h.Keys().Signing()
	if err != nil {
		t.Fatal(err)
	}
	sealer := prooftest.SealedOn{Sealer: statement.NewSealer(key, statement.Facts{Tier: "none"}), At: time.Now().AddDate(-1, 0, 0)}
	l, err := wal.Create(dir, wal.Options{Run: run, Sealer: sealer})
	if err != nil {
		t.Fatal(err)
	}
	rec := audit.NewRecorder(l, redact.New(make([]byte, 32)))
	if _, err := rec.Record(t.Context(), pastEvent("what did not happen\n")); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(context.WithoutCancel(t.Context()), wal.Sealed); err != nil {
		t.Fatal(err)
	}
}

// forceLog adds a run's manifests to a log, which Custody itself refuses.
func forceLog(t *testing.T, h *host.Host, log, dir string) {
	t.Helper()
	key, err := h.Keys().Signing()
	if err != nil {
		t.Fatal(err)
	}
	driver, err := posix.New(t.Context(), posix.Config{Path: log})
	if err != nil {
		t.Fatal(err)
	}
	options := tessera.NewAppendOptions().WithCheckpointSigner(key).WithBatching(1, time.Second).
		WithCheckpointInterval(time.Hour).WithCheckpointRepublishInterval(0).WithGarbageCollectionInterval(0)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	a, _, _, err := tessera.NewAppender(ctx, driver, options)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"+wal.ManifestSuffix))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	verifier, err := key.Verifier()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		signed, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n, err := note.Open(signed, note.VerifierList(verifier))
		if err != nil {
			t.Fatal(err)
		}
		m, err := statement.ParseManifest(n.Text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Add(ctx, tessera.NewEntry(statement.ManifestLeaf(m.Run, m.Segment, statement.Digest(signed))))(); err != nil {
			t.Fatal(err)
		}
	}
}
