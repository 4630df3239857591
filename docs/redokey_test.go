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
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/proof/statement"
)

// TestRedoEarlyKey: all checkers refuse a run whose stated sealing time is before the host had the key that signed it. As
// the old key is deleted at a rotation, the earlier history cannot be rewritten.
func TestRedoEarlyKey(t *testing.T) {
	t.Parallel()
	old := must(hostkey.LoadOrCreate(filepath.Join(t.TempDir(), "old")))
	key := must(hostkey.LoadOrCreate(filepath.Join(t.TempDir(), "key")))
	rotated := time.Now().UTC().AddDate(0, -6, 0).Truncate(time.Second)
	stated := must(must(statement.NewRotation(old.Public, key.Public, rotated)).Sign(old))
	s := &scene{log: &tree{signer: key}}
	s.log.add(statement.RotationLeaf(statement.Digest(stated)))
	oldOnly, both := []hostkey.Key{old}, []hostkey.Key{old, key}
	others := newCheckers(t)
	for title, c := range map[string]struct {
		key       hostkey.Key
		sealed    time.Time
		rotations [][]byte
		pinned    []hostkey.Key
		want      int
	}{
		"the old key's, genuine":            {old, rotated.AddDate(0, -1, 0), [][]byte{stated}, oldOnly, 0},
		"written again by the new key":      {key, rotated.AddDate(0, -1, 0), [][]byte{stated}, oldOnly, 1},
		"written again, both keys pinned":   {key, rotated.AddDate(0, -1, 0), [][]byte{stated}, both, 1},
		"a second over ten minutes before":  {key, rotated.Add(-601 * time.Second), [][]byte{stated}, oldOnly, 1},
		"ten minutes before":                {key, rotated.Add(-600 * time.Second), [][]byte{stated}, oldOnly, 0},
		"the new key's, genuine":            {key, rotated.AddDate(0, 1, 0), [][]byte{stated}, oldOnly, 0},
		"without the rotation":              {key, rotated.AddDate(0, -1, 0), nil, oldOnly, 2},
		"without the rotation, both pinned": {key, rotated.AddDate(0, -1, 0), nil, both, 0}, // nothing states which key the host had then
	} {
		t.Run(title, func(t *testing.T) {
			dir := recordOf(t, "r-1", c.key, c.sealed, c.sealed)
			s.enter(t, dir)
			s.log.publish()
			var b bytes.Buffer
			o := proof.BundleOptions{HostKey: c.key.Public, Signer: c.key, Log: s.log, Rotations: c.rotations}
			if err := proof.WriteBundle(t.Context(), &b, dir, o); err != nil {
				t.Fatal(err)
			}
			bundle := write(t, prooftest.Unpack(t, b.Bytes()))
			arguments := []string{bundle}
			var pinned []note.Verifier
			for _, k := range c.pinned {
				arguments = append(arguments, "--key", k.Public)
				pinned = append(pinned, must(k.Verifier()))
			}
			got, err := ours(t, bundle, proof.Trust{Keys: note.VerifierList(pinned...)})
			if got != c.want {
				t.Errorf("want %d; verify: %d, %v", c.want, got, err)
			}
			others.agree(title, got, err, arguments...)

			e := must(proof.OpenDir(dir))
			defer e.Close()
			e.Log, e.HostKey, e.Rotations = s.log, c.key.Public, c.rotations
			arguments[0] = filepath.Join(t.TempDir(), "proof.json")
			one := must(must(proof.ProofOf(t.Context(), e, 1)).Encode())
			if err := os.WriteFile(arguments[0], one, 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err = oursRecord(one, proof.Trust{Keys: note.VerifierList(pinned...)}); got != c.want {
				t.Errorf("proof of one record: want %d; verify: %d, %v", c.want, got, err)
			}
			others.agree(title+", one record", got, err, arguments...)
		})
	}
}
