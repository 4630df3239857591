// Package merkle computes and verifies the Merkle trees of the record (RFC 6962): over the records of a segment, over the
// entries of the host's log, and over the files of a copy. The tree algorithms are those of transparency-dev/merkle; this
// package adds the digest's text form, and the leaves.
package merkle

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
)

// Hash is a SHA-256 digest. In JSON it is lower-case hex, and empty when zero.
type Hash [32]byte

// String returns lower-case hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) {
	if h == (Hash{}) {
		return nil, nil
	}
	return hex.AppendEncode(nil, h[:]), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(b []byte) error {
	*h = Hash{}
	if len(b) == 0 {
		return nil
	}
	if len(b) != hex.EncodedLen(len(h)) {
		return fmt.Errorf("digest of %d characters, want %d", len(b), hex.EncodedLen(len(h)))
	}
	_, err := hex.Decode(h[:], b)
	return err
}

// LeafHash returns SHA-256(0x00 || salt || record), RFC 6962 section 2.1 with
// salt || record as the leaf's data.
func LeafHash(salt [16]byte, record []byte) Hash {
	h := sha256.New()
	h.Write([]byte{0})
	h.Write(salt[:])
	h.Write(record)
	return Hash(h.Sum(nil))
}

// ranges makes the compact ranges of trees (RFC 6962, section 2.1).
var ranges = compact.RangeFactory{Hash: nodeHash}

// nodeHash is rfc6962.DefaultHasher.HashChildren in a third of the time: each record needs one.
func nodeHash(left, right []byte) []byte {
	var b [1 + 2*len(Hash{})]byte
	b[0] = rfc6962.RFC6962NodeHashPrefix
	copy(b[1:], left)
	copy(b[1+len(Hash{}):], right)
	sum := sha256.Sum256(b[:])
	return sum[:]
}

// Tree computes the root of a Merkle tree as leaves arrive. It stores only the roots of the complete subtrees. The zero
// Tree is empty; a non-empty Tree must not be copied.
type Tree struct{ leaves *compact.Range }

// Append adds a leaf hash.
func (t *Tree) Append(leaf Hash) {
	if t.leaves == nil {
		t.leaves = ranges.NewEmptyRange(0)
	}
	if err := t.leaves.Append(leaf[:], nil); err != nil {
		panic(err) // a range that only Append changes is never inconsistent
	}
}

// Size returns the number of leaves.
func (t *Tree) Size() uint64 {
	if t.leaves == nil {
		return 0
	}
	return t.leaves.End()
}

// Root returns the tree's root hash; that of an empty tree is SHA-256 of no data.
func (t *Tree) Root() Hash {
	if t.Size() == 0 {
		return Hash(rfc6962.DefaultHasher.EmptyRoot())
	}
	root, err := t.leaves.GetRootHash(nil)
	if err != nil {
		panic(err) // the range begins with the first leaf
	}
	return Hash(root)
}

// Root returns the root hash over leaves.
func Root(leaves []Hash) Hash {
	var t Tree
	for _, leaf := range leaves {
		t.Append(leaf)
	}
	return t.Root()
}

// Inclusion returns the audit path of leaf i, from the leaf up (RFC 6962
// section 2.1.1). It panics if there is no leaf i.
func Inclusion(leaves []Hash, i int) []Hash {
	nodes, err := proof.Inclusion(uint64(i), uint64(len(leaves)))
	if err != nil {
		panic(err)
	}
	var hashes [][]byte
	for _, id := range nodes.IDs {
		first, end := id.Coverage()
		h := Root(leaves[first:end])
		hashes = append(hashes, h[:])
	}
	hashes, err = nodes.Rehash(hashes, rfc6962.DefaultHasher.HashChildren)
	if err != nil {
		panic(err) // there is a hash for each node
	}
	var path []Hash
	for _, h := range hashes {
		path = append(path, Hash(h))
	}
	return path
}

// VerifyInclusion reports whether path proves that leaf is at index i in the tree of that size and root.
func VerifyInclusion(leaf Hash, i, size uint64, path []Hash, root Hash) bool {
	return proof.VerifyInclusion(rfc6962.DefaultHasher, i, size, leaf[:], bytesOf(path), root[:]) == nil
}

// VerifyConsistency reports whether path proves that the tree of size n and root second extends the one of size m
// and root first.
func VerifyConsistency(m, n uint64, path []Hash, first, second Hash) bool {
	if m == 0 && first != Root(nil) { // package proof accepts any root of an empty tree
		return false
	}
	return proof.VerifyConsistency(rfc6962.DefaultHasher, m, n, bytesOf(path), first[:], second[:]) == nil
}

func bytesOf(path []Hash) [][]byte {
	all := make([][]byte, len(path))
	for i := range path {
		all[i] = path[i][:]
	}
	return all
}

// ParseBase64 parses a digest in canonical base64.
func ParseBase64(s string) (h Hash, err error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || len(raw) != len(h) {
		return h, fmt.Errorf("%.60q is not a digest in base64", s)
	}
	return Hash(raw), nil
}
