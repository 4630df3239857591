package hostlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/internal/regular"
)

// Checkpoint is a published tree head.
type Checkpoint struct {
	Note []byte // signed; empty if there is none yet
	Size uint64
	Root merkle.Hash
}

func (c Checkpoint) tree() tree { return tree{Size: c.Size, Root: c.Root} }

// keys are the keys of one log: the current signing key and its predecessors.
type keys struct {
	origin string
	list   note.Verifiers
}

func newKeys(v note.Verifier, older ...note.Verifier) keys {
	all := []note.Verifier{v}
	seen := map[uint32]bool{v.KeyHash(): true}
	for _, o := range older {
		if o.Name() == v.Name() && !seen[o.KeyHash()] {
			seen[o.KeyHash()] = true
			all = append(all, o)
		}
	}
	return keys{origin: v.Name(), list: note.VerifierList(all...)}
}

// open verifies and parses a checkpoint. It refuses extension lines, which Custody does not write.
func (k keys) open(signed []byte) (Checkpoint, error) {
	n, err := note.Open(signed, k.list)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%w: %w", ErrForged, err)
	}
	c, err := statement.ParseCheckpoint(n.Text)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%w: %w", ErrForged, err)
	}
	if c.Origin != k.origin || strings.Count(n.Text, "\n") != 3 {
		return Checkpoint{}, fmt.Errorf("%w: it is of the log %.80q", ErrForged, c.Origin)
	}
	return Checkpoint{Note: signed, Size: c.Size, Root: c.Root}, nil
}

// published reads the last published checkpoint; it returns the zero Checkpoint if there is none.
func (f files) published(k keys) (Checkpoint, error) {
	signed, err := regular.ReadFile(f.path("checkpoint"))
	if errors.Is(err, fs.ErrNotExist) {
		return Checkpoint{}, nil
	}
	if err != nil {
		return Checkpoint{}, err
	}
	return k.open(signed)
}

// follows checks by size and root, without the tree, that a checkpoint can be the one published after before.
func (c Checkpoint) follows(before Checkpoint) error {
	switch {
	case c.Size < before.Size:
		return fmt.Errorf("%w: found a checkpoint of %d entries, one of %d was published", ErrRolledBack, c.Size, before.Size)
	case c.Size == before.Size && before.Size > 0 && c.Root != before.Root:
		return fmt.Errorf("%w: two checkpoints of %d entries have the roots %s and %s", ErrForked, c.Size, before.Root, c.Root)
	}
	return nil
}

// Prover is a signer that signs a checkpoint only with a proof that the log extends the one which it signed last.
type Prover interface {
	note.Signer
	// SignCheckpoint signs the text of a checkpoint. It calls extends for the proof that the log extends its first entries, up to size from.
	SignCheckpoint(text []byte, extends func(from uint64) ([]merkle.Hash, error)) ([]byte, error)
}

// proving signs checkpoints of one tree with their proofs.
type proving struct {
	Prover
	extends func(from uint64) ([]merkle.Hash, error)
}

// Sign implements note.Signer.
func (p proving) Sign(text []byte) ([]byte, error) { return p.SignCheckpoint(text, p.extends) }

// prove returns the signer for checkpoints of the tree of that size.
func (f files) prove(ctx context.Context, s note.Signer, size uint64) note.Signer {
	p, ok := s.(Prover)
	if !ok {
		return s
	}
	return proving{p, func(from uint64) ([]merkle.Hash, error) {
		if from == 0 || from >= size { // there is nothing to prove, or there is no proof
			return nil, nil
		}
		path, err := f.consistency(ctx, from, size)
		return hashes(path), err
	}}
}

// onlyEmpty is a signer for the empty tree only.
type onlyEmpty struct{ note.Signer }

// Sign implements note.Signer.
func (s onlyEmpty) Sign(text []byte) ([]byte, error) {
	if c, err := statement.ParseCheckpoint(string(text)); err != nil || c.Size != 0 {
		return nil, errors.New("publication by Tessera is disabled")
	}
	return s.Signer.Sign(text)
}
