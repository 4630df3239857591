package proof

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/bits"
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

// nodeHash returns SHA-256(0x01 || left || right), RFC 6962 section 2.1.
func nodeHash(left, right Hash) Hash {
	var b [1 + 2*len(left)]byte
	b[0] = 1
	copy(b[1:], left[:])
	copy(b[1+len(left):], right[:])
	return sha256.Sum256(b[:])
}

// Tree computes the root of a Merkle tree as leaves arrive. It keeps one hash
// for each one bit of its size: the roots of the complete subtrees, largest
// first. The zero Tree is empty.
type Tree struct {
	size  uint64
	roots []Hash
}

// Append adds a leaf hash.
func (t *Tree) Append(leaf Hash) {
	t.roots = append(t.roots, leaf)
	for range bits.TrailingZeros64(t.size + 1) {
		n := len(t.roots)
		t.roots[n-2] = nodeHash(t.roots[n-2], t.roots[n-1])
		t.roots = t.roots[:n-1]
	}
	t.size++
}

// Root returns the tree's root hash; that of no leaves is SHA-256 of nothing.
func (t *Tree) Root() Hash {
	if t.size == 0 {
		return sha256.Sum256(nil)
	}
	root := t.roots[len(t.roots)-1]
	for i := len(t.roots) - 2; i >= 0; i-- {
		root = nodeHash(t.roots[i], root)
	}
	return root
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
	_ = leaves[i]
	if len(leaves) == 1 {
		return nil
	}
	k := 1 << (bits.Len(uint(len(leaves)-1)) - 1) // largest power of two below the size
	if i < k {
		return append(Inclusion(leaves[:k], i), Root(leaves[k:]))
	}
	return append(Inclusion(leaves[k:], i-k), Root(leaves[:k]))
}

// VerifyInclusion reports whether path proves that leaf is the one at index i in the tree of that size and root (the
// algorithm of RFC 9162 section 2.1.3.2).
func VerifyInclusion(leaf Hash, i, size uint64, path []Hash, root Hash) bool {
	if i >= size {
		return false
	}
	node, last, h := i, size-1, leaf
	for _, p := range path {
		if last == 0 {
			return false
		}
		if node&1 == 1 || node == last {
			h = nodeHash(p, h)
			for node&1 == 0 && node != 0 {
				node, last = node>>1, last>>1
			}
		} else {
			h = nodeHash(h, p)
		}
		node, last = node>>1, last>>1
	}
	return last == 0 && h == root
}

// VerifyConsistency reports whether path proves that the tree of size n and root second goes on from the one of size m
// and root first (the algorithm of RFC 9162, section 2.1.4.2).
func VerifyConsistency(m, n uint64, path []Hash, first, second Hash) bool {
	switch {
	case m == n:
		return len(path) == 0 && first == second
	case m == 0:
		return len(path) == 0 && first == Root(nil)
	case m > n || len(path) == 0:
		return false
	}
	if m&(m-1) == 0 { // the old tree is whole in the new one, and its root is left out
		path = append([]Hash{first}, path...)
	}
	node, last := m-1, n-1
	for node&1 == 1 {
		node, last = node>>1, last>>1
	}
	a, b := path[0], path[0]
	for _, p := range path[1:] {
		if last == 0 {
			return false
		}
		if node&1 == 1 || node == last {
			a, b = nodeHash(p, a), nodeHash(p, b)
			for node&1 == 0 && node != 0 {
				node, last = node>>1, last>>1
			}
		} else {
			b = nodeHash(b, p)
		}
		node, last = node>>1, last>>1
	}
	return last == 0 && a == first && b == second
}
