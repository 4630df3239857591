package docs_test

import (
	"bytes"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/prooftest"
)

// TestRedoMinority: a rewritten run gets no old time from witnesses that lie about it if they are fewer than the quorum.
func TestRedoMinority(t *testing.T) {
	t.Parallel()
	then := time.Now().UTC().AddDate(-1, 0, 0)
	others := newCheckers(t)
	for title, c := range map[string]struct{ lying, quorum, want int }{
		"none of three lies, two needed": {0, 2, 1},
		"one of three lies, two needed":  {1, 2, 1},
		"two of three lie, two needed":   {2, 2, 0}, // a quorum is worth as much as its members
		"two of three lie, three needed": {2, 3, 1},
		"one of three lies, one needed":  {1, 1, 0},
	} {
		t.Run(title, func(t *testing.T) {
			key := must(hostkey.LoadOrCreate(filepath.Join(t.TempDir(), "keys")))
			s := &scene{key: key, log: &tree{signer: key}}
			s.enter(t, recordOf(t, "r-1", key, then, then))
			rewritten := recordOf(t, "r-1", key, then, then)
			s.enter(t, rewritten)
			trust := proof.Trust{Keys: note.VerifierList(must(key.Verifier())), Quorum: c.quorum}
			arguments := []string{"--key", key.Public, "--quorum", strconv.Itoa(c.quorum)}
			var signers []note.Signer
			for i := range 3 {
				w := prooftest.NewWitness(t, "witness"+strconv.Itoa(i)+".example")
				trust.Witnesses = append(trust.Witnesses, w)
				arguments = append(arguments, "--witness", w.Key)
				if i < c.lying {
					signers = append(signers, w.On(then.Add(time.Second)))
				} else {
					signers = append(signers, w.On(time.Now()))
				}
			}
			past := prooftest.Past{s.log.publish(signers...)}
			var b bytes.Buffer
			if err := proof.WriteBundle(t.Context(), &b, rewritten, proof.BundleOptions{HostKey: key.Public, Signer: key, Log: s.log, Past: past}); err != nil {
				t.Fatal(err)
			}
			bundle := write(t, prooftest.Unpack(t, b.Bytes()))
			got, err := ours(t, bundle, trust)
			if got != c.want {
				t.Errorf("want %d; verify: %d, %v", c.want, got, err)
			}
			others.agree(title, got, err, append([]string{bundle}, arguments...)...)
		})
	}
}
