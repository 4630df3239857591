package docs_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/redact"
)

// recordOn writes a run of three segments whose manifests state the sealing time at.
func recordOn(t *testing.T, run string, key hostkey.Key, at time.Time) string {
	t.Helper()
	return recordOf(t, run, key, time.Time{}, at)
}

// recordOf is recordOn with another time stated in the records.
func recordOf(t *testing.T, run string, key hostkey.Key, written, at time.Time) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), run)
	sealer := prooftest.SealedOn{Sealer: statement.NewSealer(key, statement.Facts{Tier: "qemu-tcg"}), At: at}
	log := must(wal.Create(dir, wal.Options{Run: run, Sealer: sealer}))
	rec := audit.NewRecorder(log, redact.New(make([]byte, 32)))
	for range 2 {
		must(rec.Record(t.Context(), audit.Event{Time: written, Observer: audit.Guest, Kind: audit.KindOutput, Output: &audit.Output{Stream: "stdout", Text: "what happened\n"}}))
		if err := log.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(context.WithoutCancel(t.Context()), wal.Sealed); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestRedoPast: all checkers refuse a run of last year that was rewritten today with the same id and key, in the same log.
func TestRedoPast(t *testing.T) {
	t.Parallel()
	key := must(hostkey.LoadOrCreate(filepath.Join(t.TempDir(), "keys")))
	w := prooftest.NewWitness(t, "witness.example")
	s := &scene{key: key, log: &tree{signer: key}}
	then := time.Now().UTC().AddDate(-1, 0, 0)
	genuine := recordOn(t, "r-1", key, then)
	s.enter(t, genuine)
	past := prooftest.Past{s.log.publish(w.On(then.Add(2 * time.Second)))}
	s.enter(t, recordOn(t, "r-2", key, then.Add(time.Hour)))
	kept := s.log.publish(w.On(then.Add(time.Hour)))
	since := filepath.Join(t.TempDir(), "kept")
	if err := os.WriteFile(since, kept, 0o600); err != nil {
		t.Fatal(err)
	}
	nothing := filepath.Join(t.TempDir(), "nothing")
	if err := os.WriteFile(nothing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	replaced := recordOn(t, "r-1", key, then)
	s.enter(t, replaced)
	old := recordOf(t, "r-3", key, then, time.Now()) // states that it was sealed today, which is true
	s.enter(t, old)
	invented := recordOf(t, "r-4", key, then, then) // never happened
	s.enter(t, invented)
	past = append(past, kept, s.log.publish(w.On(time.Now())))
	pack := func(dir string) string {
		var b bytes.Buffer
		if err := proof.WriteBundle(t.Context(), &b, dir, proof.BundleOptions{HostKey: key.Public, Signer: key, Log: s.log, Since: kept, Past: past}); err != nil {
			t.Fatal(err)
		}
		return write(t, prooftest.Unpack(t, b.Bytes()))
	}
	host := note.VerifierList(must(key.Verifier()))
	witnesses := []note.Verifier{w}
	others := newCheckers(t)
	for title, c := range map[string]struct {
		dir       string
		trust     proof.Trust
		arguments []string
		want      int
	}{
		"rewritten, since":                   {replaced, proof.Trust{Keys: host, Witnesses: witnesses, Quorum: 1, Since: kept}, []string{"--witness", w.Key, "--quorum", "1", "--since", since}, 1},
		"rewritten":                          {replaced, proof.Trust{Keys: host, Witnesses: witnesses, Quorum: 1}, []string{"--witness", w.Key, "--quorum", "1"}, 1},
		"rewritten, ten years":               {replaced, proof.Trust{Keys: host, Witnesses: witnesses, Quorum: 1, Within: 87600 * time.Hour}, []string{"--witness", w.Key, "--quorum", "1", "--within", "315360000"}, 0},
		"rewritten, no witness":              {replaced, proof.Trust{Keys: host}, nil, 0},
		"invented":                           {invented, proof.Trust{Keys: host, Witnesses: witnesses, Quorum: 1}, []string{"--witness", w.Key, "--quorum", "1"}, 1},
		"invented, since":                    {invented, proof.Trust{Keys: host, Witnesses: witnesses, Quorum: 1, Since: kept, Within: 87600 * time.Hour}, []string{"--witness", w.Key, "--quorum", "1", "--since", since, "--within", "315360000"}, 1},
		"invented, no witness":               {invented, proof.Trust{Keys: host}, nil, 0},
		"old records":                        {old, proof.Trust{Keys: host, Witnesses: witnesses, Quorum: 1}, []string{"--witness", w.Key, "--quorum", "1"}, 1},
		"old records, since, ten years":      {old, proof.Trust{Keys: host, Witnesses: witnesses, Quorum: 1, Since: kept, Within: 87600 * time.Hour}, []string{"--witness", w.Key, "--quorum", "1", "--since", since, "--within", "315360000"}, 0},
		"old records, since":                 {old, proof.Trust{Keys: host, Witnesses: witnesses, Quorum: 1, Since: kept}, []string{"--witness", w.Key, "--quorum", "1", "--since", since}, 1},
		"genuine":                            {genuine, proof.Trust{Keys: host, Witnesses: witnesses, Quorum: 1}, []string{"--witness", w.Key, "--quorum", "1"}, 0},
		"genuine, within seconds":            {genuine, proof.Trust{Keys: host, Witnesses: witnesses, Quorum: 1, Within: time.Second}, []string{"--witness", w.Key, "--quorum", "1", "--within", "1"}, 1},
		"rewritten, since without a witness": {replaced, proof.Trust{Keys: host, Since: kept}, []string{"--since", since}, 0},
		"genuine, since nothing":             {genuine, proof.Trust{Keys: host, Since: []byte{}}, []string{"--since", nothing}, 1},
		"genuine, since":                     {genuine, proof.Trust{Keys: host, Witnesses: witnesses, Quorum: 1, Since: kept}, []string{"--witness", w.Key, "--quorum", "1", "--since", since}, 0},
	} {
		t.Run(title, func(t *testing.T) {
			bundle := pack(c.dir)
			got, err := ours(t, bundle, c.trust)
			if got != c.want {
				t.Errorf("want %d; verify: %d, %v", c.want, got, err)
			}
			others.agree(title, got, err, append([]string{bundle, "--key", key.Public}, c.arguments...)...)
		})
	}
}
