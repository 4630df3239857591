package proof

import (
	"crypto/sha256"
	"fmt"
)

// leafType begins every entry of the host's log.
const leafType = "custody leaf v1\n"

// ManifestLeaf returns the host log's entry for a signed manifest. It names the
// run, so that a run that is missing as a whole can be named too.
func ManifestLeaf(run string, segment uint64, manifest Hash) []byte {
	return fmt.Appendf(nil, leafType+"manifest %s %d %s\n", run, segment, manifest)
}

// ErasureLeaf returns the host log's entry for a signed statement that a record was erased.
func ErasureLeaf(run string, seq uint64, statement Hash) []byte {
	return fmt.Appendf(nil, leafType+"erasure %s %d %s\n", run, seq, statement)
}

// RotationLeaf returns the host log's entry for a signed statement that the host has a new key.
func RotationLeaf(statement Hash) []byte {
	return fmt.Appendf(nil, leafType+"rotation %s\n", statement)
}

// LogHash returns the leaf hash of an entry of the host's log (RFC 6962, section 2.1).
func LogHash(entry []byte) Hash { return sha256.Sum256(append([]byte{0}, entry...)) }
