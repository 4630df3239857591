package proof_test

import (
	"crypto/sha256"
	"math/rand/v2"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/custody-project/custody/audit/proof"
)

// oracleRoot is MTH of RFC 6962 section 2.1, word for word.
func oracleRoot(data [][]byte) [32]byte {
	n := len(data)
	switch n {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return sha256.Sum256(append([]byte{0}, data[0]...))
	}
	k := 1
	for k*2 < n {
		k *= 2
	}
	left, right := oracleRoot(data[:k]), oracleRoot(data[k:])
	return sha256.Sum256(append(append([]byte{1}, left[:]...), right[:]...))
}

// oraclePath is PATH of RFC 6962 section 2.1.1.
func oraclePath(m int, data [][]byte) [][32]byte {
	n := len(data)
	if n <= 1 {
		return nil
	}
	k := 1
	for k*2 < n {
		k *= 2
	}
	if m < k {
		return append(oraclePath(m, data[:k]), oracleRoot(data[k:]))
	}
	return append(oraclePath(m-k, data[k:]), oracleRoot(data[:k]))
}

func randomRecords(n int) (data [][]byte, leaves []proof.Hash) {
	dice := rand.New(rand.NewPCG(uint64(n), 1))
	for range n {
		var salt [16]byte
		for i := range salt {
			salt[i] = byte(dice.Uint32())
		}
		record := make([]byte, dice.IntN(100))
		for i := range record {
			record[i] = byte(dice.Uint32())
		}
		data = append(data, append(salt[:], record...))
		leaves = append(leaves, proof.LeafHash(salt, record))
	}
	return data, leaves
}

func TestTree(t *testing.T) {
	for n := range 70 {
		data, leaves := randomRecords(n)
		root := proof.Root(leaves)
		if root != oracleRoot(data) {
			t.Fatalf("%d leaves: root differs from the RFC's", n)
		}
		for i := range n {
			path := proof.Inclusion(leaves, i)
			want := oraclePath(i, data)
			if len(path) != len(want) {
				t.Fatalf("%d of %d: path of %d, want %d", i, n, len(path), len(want))
			}
			for j := range path {
				if path[j] != want[j] {
					t.Fatalf("%d of %d: path differs from the RFC's", i, n)
				}
			}
			checkInclusion(t, leaves, i, path, root)
		}
	}
}

// checkInclusion verifies a path, also with x/mod's independent code, and
// wants every change of it refused.
func checkInclusion(t *testing.T, leaves []proof.Hash, i int, path []proof.Hash, root proof.Hash) {
	t.Helper()
	at, n := uint64(i), uint64(len(leaves))
	if !proof.VerifyInclusion(leaves[i], at, n, path, root) {
		t.Fatalf("%d of %d: not included", i, n)
	}
	var record tlog.RecordProof
	for _, h := range path {
		record = append(record, tlog.Hash(h))
	}
	if err := tlog.CheckRecord(record, int64(n), tlog.Hash(root), int64(i), tlog.Hash(leaves[i])); err != nil {
		t.Fatalf("%d of %d: x/mod: %v", i, n, err)
	}
	bad := leaves[i]
	bad[7] ^= 1
	switch {
	case proof.VerifyInclusion(bad, at, n, path, root):
		t.Fatal("another leaf is included")
	case proof.VerifyInclusion(leaves[i], at, n, append(path, bad), root):
		t.Fatal("a path too long is accepted")
	case n > 1 && proof.VerifyInclusion(leaves[i], at, n, path[:len(path)-1], root):
		t.Fatal("a path too short is accepted")
	case n > 1 && proof.VerifyInclusion(leaves[i], (at+1)%n, n, path, root):
		t.Fatal("another index is accepted")
	case proof.VerifyInclusion(leaves[i], n, n, path, root):
		t.Fatal("an index outside is accepted")
	}
}

func TestHashText(t *testing.T) {
	h := proof.Root(nil)
	text, err := h.MarshalText()
	check(t, err)
	var back proof.Hash
	check(t, back.UnmarshalText(text))
	if back != h || string(text) != "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" {
		t.Errorf("%s", text)
	}
	for _, bad := range []string{"ab", string(text) + "00", "zz" + string(text[2:])} {
		if back.UnmarshalText([]byte(bad)) == nil {
			t.Errorf("%q is taken for a digest", bad)
		}
	}
}
