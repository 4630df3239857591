package statement

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/custody-project/custody/audit/proof/merkle"
)

// leafType is the first line of every entry of the host's log.
const leafType = "custody leaf v1\n"

// ManifestLeaf returns the host log's entry for a signed manifest. It names the
// run, so that a finding can name a run that is completely missing.
func ManifestLeaf(run string, segment uint64, manifest merkle.Hash) []byte {
	return Leaf{OfManifest, run, segment, manifest}.entry()
}

// ErasureLeaf returns the host log's entry for a signed statement that a record was erased.
func ErasureLeaf(run string, seq uint64, stated merkle.Hash) []byte {
	return Leaf{OfErasure, run, seq, stated}.entry()
}

// DeletionLeaf returns the host log's entry for a signed statement that a whole run of so many segments was deleted.
func DeletionLeaf(run string, segments uint64, stated merkle.Hash) []byte {
	return Leaf{OfDeletion, run, segments, stated}.entry()
}

// RotationLeaf returns the host log's entry for a signed statement that the host has a new key.
func RotationLeaf(stated merkle.Hash) []byte { return Leaf{Of: OfRotation, Digest: stated}.entry() }

// LogHash returns the leaf hash of an entry of the host's log (RFC 6962, section 2.1).
func LogHash(entry []byte) merkle.Hash { return sha256.Sum256(append([]byte{0}, entry...)) }

// Subjects of entries of the host's log.
const (
	OfManifest = "manifest"
	OfErasure  = "erasure"
	OfDeletion = "deletion"
	OfRotation = "rotation"
)

// Leaf is a parsed entry of the host's log.
type Leaf struct {
	Of     string
	Run    string      // not of a rotation
	N      uint64      // number of the segment, seq of the record, or how many segments a deleted run had
	Digest merkle.Hash // SHA-256 of the signed note
}

func (l Leaf) entry() []byte {
	if l.Of == OfRotation {
		return fmt.Appendf(nil, leafType+"%s %s\n", l.Of, l.Digest)
	}
	return fmt.Appendf(nil, leafType+"%s %s %d %s\n", l.Of, l.Run, l.N, l.Digest)
}

// ParseLeaf parses an entry of the host's log. It accepts exactly what the functions above make.
func ParseLeaf(entry []byte) (Leaf, error) {
	var l Leaf
	var digest string
	line := strings.TrimPrefix(string(entry), leafType)
	if n, _ := fmt.Sscanf(line, OfRotation+" %s\n", &digest); n == 1 {
		l.Of = OfRotation
	} else if n, _ := fmt.Sscanf(line, "%s %s %d %s\n", &l.Of, &l.Run, &l.N, &digest); n != 4 || l.Of != OfManifest && l.Of != OfErasure && l.Of != OfDeletion {
		return Leaf{}, fmt.Errorf("%.200q is not an entry of a host's log", entry)
	}
	if err := l.Digest.UnmarshalText([]byte(digest)); err != nil {
		return Leaf{}, fmt.Errorf("entry of a host's log: %w", err)
	}
	if !bytes.Equal(l.entry(), entry) {
		return Leaf{}, fmt.Errorf("%.200q is not in canonical form", entry)
	}
	return l, nil
}
