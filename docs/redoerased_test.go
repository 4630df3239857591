package docs_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/proof/statement"
)

// TestRedoErasedPast: all refuse an erasure that came into the log after the checkpoint that was kept and claims to be older.
func TestRedoErasedPast(t *testing.T) {
	t.Parallel()
	then := time.Now().UTC().AddDate(-1, 0, 0).Truncate(time.Second)
	others := newCheckers(t)
	for title, c := range map[string]struct {
		erased    time.Time
		before    bool // it is in the log before the checkpoint that was kept
		within    time.Duration
		witnessed bool
		want      int
	}{
		"today, as it says":             {time.Now(), false, 24 * time.Hour, true, 0},
		"says last year":                {then.Add(time.Minute), false, 24 * time.Hour, true, 1},
		"says last year, two years":     {then.Add(time.Minute), false, 17520 * time.Hour, true, 0},
		"says last year, no witness":    {then.Add(time.Minute), false, 24 * time.Hour, false, 0},
		"last year":                     {then.Add(time.Minute), true, 24 * time.Hour, true, 0},
		"a day before it was kept":      {then.Add(24 * time.Hour), false, 24 * time.Hour, true, 0},
		"over a day before it was kept": {then.Add(24*time.Hour - time.Second), false, 24 * time.Hour, true, 1},
	} {
		t.Run(title, func(t *testing.T) {
			key := must(hostkey.LoadOrCreate(filepath.Join(t.TempDir(), "keys")))
			w := prooftest.NewWitness(t, "witness.example")
			s := &scene{key: key, log: &tree{signer: key}}
			dir := recordOf(t, "r-1", key, then, then)
			s.enter(t, dir)
			past := prooftest.Past{s.log.publish(w.On(then.Add(2 * time.Second)))}
			eraseOn(t, dir, key, 2, c.erased)
			stated := statement.Digest(must(os.ReadFile(filepath.Join(dir, statement.ErasureName(2)))))
			entry := statement.ErasureLeaf("r-1", 2, stated)
			if c.before {
				s.log.add(entry)
			} else {
				s.log.add(statement.ManifestLeaf("r-0", 0, merkle.Hash{}))
			}
			kept := s.log.publish(w.On(then.Add(48 * time.Hour)))
			since := filepath.Join(t.TempDir(), "kept")
			if err := os.WriteFile(since, kept, 0o600); err != nil {
				t.Fatal(err)
			}
			if !c.before {
				s.log.add(entry)
			}
			s.log.publish(w.On(time.Now()))
			var b bytes.Buffer
			if err := proof.WriteBundle(t.Context(), &b, dir, proof.BundleOptions{HostKey: key.Public, Signer: key, Log: s.log, Since: kept, Past: past}); err != nil {
				t.Fatal(err)
			}
			bundle := write(t, prooftest.Unpack(t, b.Bytes()))
			trust := proof.Trust{Keys: note.VerifierList(must(key.Verifier())), Since: kept, Within: c.within}
			arguments := []string{bundle, "--key", key.Public, "--since", since, "--within", seconds(c.within)}
			if c.witnessed {
				trust.Witnesses, trust.Quorum = []note.Verifier{w}, 1
				arguments = append(arguments, "--witness", w.Key, "--quorum", "1")
			}
			got, err := ours(t, bundle, trust)
			if got != c.want {
				t.Errorf("want %d; verify: %d, %v", c.want, got, err)
			}
			others.agree(title, got, err, arguments...)
		})
	}
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
