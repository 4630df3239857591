package local_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/secrets"
	"github.com/custody-project/custody/secrets/local"
)

// A run of two steps with a real record on a disk: the timeline is complete, printing a value ends the lease, and no
// file contains a value.
func TestRun(t *testing.T) {
	const canary, token, old = "canary-6f1d7a80c2", "token-90b1dd37e4", "token-that-was-rotated"
	home, dir := t.TempDir(), t.TempDir()
	t.Setenv("CUSTODY_TEST_CANARY", canary)
	path := filepath.Join(home, "token")
	put := func(s string) {
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(old)
	log := record(t, filepath.Join(dir, "r-1"))
	red := redact.New([]byte("the project's key"))
	rec := audit.NewRecorder(log, red)
	iss := secrets.NewIssuer(secrets.Config{
		Run: "r-1", Dir: home, Recorder: rec, Redactor: red,
		Brokers: map[string]secrets.Broker{"env": local.Broker{}, "file": local.Broker{}, "cmd": local.Broker{}},
		Bindings: []secrets.Binding{
			{Name: "canary", From: "env:CUSTODY_TEST_CANARY", Deliver: secrets.Deliver{Env: "CANARY"}},
			{Name: "token", From: "file:token", Deliver: secrets.Deliver{Header: "authorization", File: "token"}},
		},
	})
	defer iss.Close(t.Context())

	one, err := iss.Begin(t.Context(), "one", []string{"canary", "token"}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := one.End(t.Context(), "the step has ended"); err != nil {
		t.Fatal(err)
	}
	put(token)
	two, err := iss.Begin(t.Context(), "two", []string{"canary", "token"}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	items, err := two.Deliver(t.Context())
	if err != nil || len(items) != 2 || string(items[0].Value) != canary || !strings.HasPrefix(string(items[1].Value), "custody-token-") {
		t.Fatalf("items %q, %v", items, err)
	}
	if c, err := iss.Credential("token"); err != nil || string(c.Value) != token || c.Placeholder != string(items[1].Value) {
		t.Errorf("credential %v", err)
	}
	if err := two.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	// The recorder's reaction to a printed value.
	text := base64.StdEncoding.EncodeToString([]byte("my " + canary + " and " + token + " and " + old))
	found := red.Find([]byte(text))
	seq, err := rec.Record(t.Context(), audit.Event{Observer: audit.Guest, Kind: audit.KindOutput, Step: "two",
		Output: &audit.Output{Stream: "stdout", Text: audit.Text(text)}})
	if err != nil {
		t.Fatal(err)
	}
	iss.Saw(audit.KindOutput, "two", found, seq)
	select {
	case <-two.Over():
	default:
		t.Error("not ended immediately")
	}
	if err := two.Err(); !secrets.Anomalous(err) {
		t.Errorf("error %v", err)
	}
	if err := iss.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := log.Close(t.Context(), wal.Sealed); err != nil {
		t.Fatal(err)
	}
	timeline(t, dir)
	nowhere(t, dir, canary, token, old, "custody-token-")
}

func record(t *testing.T, dir string) *wal.Log {
	t.Helper()
	key, _, err := note.GenerateKey(nil, "custody-test")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := wal.Create(dir, wal.Options{Run: "r-1", Sealer: statement.NewSealer(signer, statement.Facts{})})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// timeline reads the records from the files, which are not compressed.
func timeline(t *testing.T, dir string) {
	t.Helper()
	var got []string
	for _, b := range files(t, dir) {
		for _, piece := range bytes.Split(b, []byte(`{"v":1,"run":"r-1","seq":`))[1:] {
			var r audit.Record
			if err := json.NewDecoder(bytes.NewReader(append([]byte(`{"v":1,"run":"r-1","seq":`), piece...))).Decode(&r); err != nil {
				t.Fatal(err)
			}
			switch {
			case r.Secret != nil:
				got = append(got, strings.TrimSpace(r.Step+" "+string(r.Secret.Op)+" "+r.Secret.Name))
			case r.Finding != nil:
				got = append(got, r.Step+" "+string(r.Finding.Rule)+" "+r.Finding.Secret+" "+r.Finding.Action)
			}
		}
	}
	want := []string{
		"one mint canary", "one mint token", "one revoke",
		"two mint canary", "two mint token", "two deliver canary", "two deliver token", "two renew", "two revoke",
		"two secret-in-output canary revoke", "two secret-in-output token revoke",
	}
	slices.Sort(got[max(0, len(got)-2):]) // the two findings are in any order
	if !slices.Equal(got, want) {
		t.Errorf("timeline\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func files(t *testing.T, dir string) [][]byte {
	t.Helper()
	var all [][]byte
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all = append(all, b)
		return err
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("%d files, %v", len(all), err)
	}
	return all
}

func nowhere(t *testing.T, dir string, values ...string) {
	t.Helper()
	for _, b := range files(t, dir) {
		for _, v := range values {
			if bytes.Contains(b, []byte(v)) || bytes.Contains(b, []byte(base64.StdEncoding.EncodeToString([]byte(v))[:12])) {
				t.Errorf("%q is on the disk", v)
			}
		}
	}
}
