package merkle_test

import (
	"crypto/sha256"
	"math/rand/v2"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/custody-project/custody/audit/proof/merkle"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

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

func randomRecords(n int) (data [][]byte, leaves []merkle.Hash) {
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
		leaves = append(leaves, merkle.LeafHash(salt, record))
	}
	return data, leaves
}

func TestTree(t *testing.T) {
	for n := range 70 {
		data, leaves := randomRecords(n)
		root := merkle.Root(leaves)
		if root != oracleRoot(data) {
			t.Fatalf("%d leaves: root differs from the RFC's", n)
		}
		for i := range n {
			path := merkle.Inclusion(leaves, i)
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
// checks that every change of it is refused.
func checkInclusion(t *testing.T, leaves []merkle.Hash, i int, path []merkle.Hash, root merkle.Hash) {
	t.Helper()
	at, n := uint64(i), uint64(len(leaves))
	if !merkle.VerifyInclusion(leaves[i], at, n, path, root) {
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
	case merkle.VerifyInclusion(bad, at, n, path, root):
		t.Fatal("another leaf is included")
	case merkle.VerifyInclusion(leaves[i], at, n, append(path, bad), root):
		t.Fatal("a path too long is accepted")
	case n > 1 && merkle.VerifyInclusion(leaves[i], at, n, path[:len(path)-1], root):
		t.Fatal("a path too short is accepted")
	case n > 1 && merkle.VerifyInclusion(leaves[i], (at+1)%n, n, path, root):
		t.Fatal("another index is accepted")
	case merkle.VerifyInclusion(leaves[i], n, n, path, root):
		t.Fatal("an index outside is accepted")
	}
}

func TestHashText(t *testing.T) {
	h := merkle.Root(nil)
	text, err := h.MarshalText()
	check(t, err)
	var back merkle.Hash
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

// TestConsistencyAgainstTlog compares VerifyConsistency with golang.org/x/mod/sumdb/tlog, for right proofs and wrong
// ones.
func TestConsistencyAgainstTlog(t *testing.T) {
	var l storedHashes
	var roots []merkle.Hash
	for n := range 70 {
		root, err := tlog.TreeHash(int64(n), l)
		check(t, err)
		roots = append(roots, merkle.Hash(root))
		more, err := tlog.StoredHashes(int64(n), []byte{byte(n)}, l)
		check(t, err)
		l = append(l, more...)
	}
	for n := 1; n < 70; n++ {
		for m := 1; m <= n; m++ {
			p, err := tlog.ProveTree(int64(n), int64(m), l)
			check(t, err)
			path := hashesOf(p)
			if !merkle.VerifyConsistency(uint64(m), uint64(n), path, roots[m], roots[n]) {
				t.Fatalf("%d to %d does not hold", m, n)
			}
			wrong := wrongly(path, m, n)
			if merkle.VerifyConsistency(wrong.m, wrong.n, wrong.path, roots[m], roots[n]) != wrong.tlog(roots[m], roots[n]) {
				t.Fatalf("%d to %d: %+v: tlog says otherwise", m, n, wrong)
			}
		}
	}
	for range 20000 {
		m, n := 1+rand.IntN(69), 1+rand.IntN(69)
		a, b := 1+rand.IntN(69), 1+rand.IntN(69)
		p, err := tlog.ProveTree(int64(max(a, b)), int64(min(a, b)), l)
		check(t, err)
		claim := claim{uint64(m), uint64(n), hashesOf(p)}
		if got := merkle.VerifyConsistency(claim.m, claim.n, claim.path, roots[m], roots[n]); got != claim.tlog(roots[m], roots[n]) {
			t.Fatalf("proof of %d to %d for %d to %d: %t", a, b, m, n, got)
		}
	}
	if !merkle.VerifyConsistency(0, 9, nil, roots[0], roots[9]) || merkle.VerifyConsistency(0, 9, nil, roots[1], roots[9]) ||
		merkle.VerifyConsistency(9, 3, nil, roots[9], roots[3]) || merkle.VerifyConsistency(1<<63, 1<<63+1, nil, roots[1], roots[2]) {
		t.Error("at the edges")
	}
}

// storedHashes is a tlog.HashReader.
type storedHashes []tlog.Hash

func (l storedHashes) ReadHashes(indexes []int64) (all []tlog.Hash, err error) {
	for _, i := range indexes {
		all = append(all, l[i])
	}
	return all, nil
}

func hashesOf(p []tlog.Hash) (all []merkle.Hash) {
	for _, h := range p {
		all = append(all, merkle.Hash(h))
	}
	return all
}

// claim is a proof for two sizes, right or wrong.
type claim struct {
	m, n uint64
	path []merkle.Hash
}

func (c claim) tlog(first, second merkle.Hash) bool {
	var p tlog.TreeProof
	for _, h := range c.path {
		p = append(p, tlog.Hash(h))
	}
	return tlog.CheckTree(p, int64(c.n), tlog.Hash(second), int64(c.m), tlog.Hash(first)) == nil
}

// wrongly changes one thing about a proof.
func wrongly(path []merkle.Hash, m, n int) claim {
	c := claim{uint64(m), uint64(n), append([]merkle.Hash{}, path...)}
	switch i := rand.IntN(4); {
	case i == 0 && len(path) > 0:
		c.path[rand.IntN(len(path))][3]++
	case i == 1 && len(path) > 0:
		c.path = c.path[1:]
	case i == 2:
		c.path = append(c.path, merkle.Hash{})
	default:
		c.n++
	}
	return c
}
