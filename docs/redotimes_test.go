package docs_test

import (
	"bytes"
	"fmt"
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

// TestRedoCosignedAt: all checkers judge the times of cosignatures alike, at the limits of 64 bits too.
func TestRedoCosignedAt(t *testing.T) {
	t.Parallel()
	others := newCheckers(t)
	now := time.Now().Unix()
	for _, at := range []int64{
		0, 1, now, now + 1<<33, 253402300799, 253402300800, 1<<55 - 1, 1 << 62,
		1<<63 - 1 - 62135596800, 1<<63 - 62135596800, 1<<63 - 1, // the last that fit a time.Time, and above
		-1 << 63, -62135596801, -62135596800, -1, // from 2^63 to 2^64-1
	} {
		key := must(hostkey.LoadOrCreate(filepath.Join(t.TempDir(), "keys")))
		w := prooftest.NewWitness(t, "witness.example").On(time.Unix(at, 0))
		s := &scene{key: key, log: &tree{signer: key}}
		s.log.add(statement.ManifestLeaf("r-0", 0, merkle.Hash{}))
		kept := s.log.publish(w)
		since := filepath.Join(t.TempDir(), "kept")
		if err := os.WriteFile(since, kept, 0o600); err != nil {
			t.Fatal(err)
		}
		dir := recordOn(t, "r-1", key, time.Now())
		s.enter(t, dir)
		s.log.publish(w)
		var b bytes.Buffer
		if err := proof.WriteBundle(t.Context(), &b, dir, proof.BundleOptions{HostKey: key.Public, Signer: key, Log: s.log, Since: kept}); err != nil {
			t.Fatal(err)
		}
		bundle := write(t, prooftest.Unpack(t, b.Bytes()))
		trust := proof.Trust{Keys: note.VerifierList(must(key.Verifier())), Witnesses: []note.Verifier{w}, Quorum: 1}
		arguments := []string{bundle, "--key", key.Public, "--witness", w.Key, "--quorum", "1"}
		got, err := ours(t, bundle, trust)
		if late := uint64(at) > uint64(now)+2*86400; (got == 1) != late {
			t.Errorf("cosigned at %d: %d, %v", uint64(at), got, err)
		}
		others.agree(fmt.Sprint("cosigned at ", uint64(at)), got, err, arguments...)
		trust.Since = kept
		got, err = ours(t, bundle, trust)
		others.agree(fmt.Sprint("kept, cosigned at ", uint64(at)), got, err, append(arguments, "--since", since)...)
	}
}
