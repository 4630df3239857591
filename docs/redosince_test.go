package docs_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/proof/statement"
)

// TestRedoSince: all judge a run alike by any checkpoint that a verifier may have kept.
func TestRedoSince(t *testing.T) {
	t.Parallel()
	key := must(hostkey.LoadOrCreate(filepath.Join(t.TempDir(), "keys")))
	stranger := must(hostkey.LoadOrCreate(filepath.Join(t.TempDir(), "keys")))
	w := prooftest.NewWitness(t, "witness.example")
	then := time.Now().UTC().AddDate(-1, 0, 0)
	s := &scene{key: key, log: &tree{signer: key}}
	empty := s.log.publish(w.On(then.Add(-time.Hour)))
	late := s.log.publish(w.On(then.Add(time.Hour))) // still empty after the run's stated seal
	dir := recordOf(t, "r-1", key, then, then)
	s.enter(t, dir)
	same := s.log.publish(w.On(then.Add(2 * time.Second)))
	var b bytes.Buffer
	o := proof.BundleOptions{HostKey: key.Public, Signer: key, Log: s.log, Past: prooftest.Past{same}}
	if err := proof.WriteBundle(t.Context(), &b, dir, o); err != nil {
		t.Fatal(err)
	}
	bundle := write(t, prooftest.Unpack(t, b.Bytes()))
	other, forked := &tree{signer: stranger}, &tree{signer: key}
	for range 3 {
		other.add(statement.ManifestLeaf("r-2", 0, merkle.Hash{}))
		forked.add(statement.ManifestLeaf("r-2", 0, merkle.Hash{}))
	}
	s.log.add(statement.ManifestLeaf("r-2", 0, merkle.Hash{}))
	others := newCheckers(t)
	for title, c := range map[string]struct {
		kept []byte
		want int
	}{
		"empty":                       {empty, 0},
		"empty, after the run's seal": {late, 1},
		"the same":                    {same, 0},
		"larger":                      {s.log.publish(w.On(then.Add(time.Minute))), 1},
		"as large, another root":      {forked.publish(w.On(then)), 1},
		"another key's":               {other.publish(w.On(then)), 1},
		"cut":                         {same[:len(same)-1], 1},
	} {
		t.Run(title, func(t *testing.T) {
			since := filepath.Join(t.TempDir(), "kept")
			if err := os.WriteFile(since, c.kept, 0o600); err != nil {
				t.Fatal(err)
			}
			trust := proof.Trust{Keys: note.VerifierList(must(key.Verifier())), Witnesses: []note.Verifier{w}, Quorum: 1, Since: c.kept}
			got, err := ours(t, bundle, trust)
			if got != c.want {
				t.Errorf("want %d; verify: %d, %v", c.want, got, err)
			}
			others.agree(title, got, err, bundle, "--key", key.Public, "--witness", w.Key, "--quorum", "1", "--since", since)
		})
	}
}
