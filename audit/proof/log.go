package proof

import (
	"context"

	"github.com/custody-project/custody/audit/proof/merkle"
)

// Log is the host's log as published: an RFC 6962 tree whose entries are those that
// ManifestLeaf, ErasureLeaf, DeletionLeaf and RotationLeaf make. It is not trusted. It must be
// safe for concurrent use.
type Log interface {
	// Checkpoint returns the last published signed note (C2SP tlog-checkpoint), with the cosignatures of
	// witnesses. The error wraps fs.ErrNotExist if there is none yet.
	Checkpoint(ctx context.Context) ([]byte, error)
	// Index returns the index of an entry, given its bytes. The error wraps fs.ErrNotExist
	// if the log does not have it.
	Index(ctx context.Context, entry []byte) (uint64, error)
	// Inclusion returns the audit path of the entry at index in the tree of that size, from
	// the leaf up (RFC 6962, section 2.1.1).
	Inclusion(ctx context.Context, index, size uint64) ([]merkle.Hash, error)
	// Consistency returns the proof that the tree of size to extends that of size from
	// (RFC 6962, section 2.1.2). It is empty if from is 0 or to.
	Consistency(ctx context.Context, from, to uint64) ([]merkle.Hash, error)
}
