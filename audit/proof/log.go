package proof

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// Log is the host's log as it was published: an RFC 6962 tree whose entries are those that
// ManifestLeaf, ErasureLeaf, DeletionLeaf and RotationLeaf make. Nothing that it answers is trusted. Its
// methods may be called concurrently.
type Log interface {
	// Checkpoint returns the last published signed note (C2SP tlog-checkpoint), with what
	// witnesses have added to it. The error wraps fs.ErrNotExist if there is none yet.
	Checkpoint(ctx context.Context) ([]byte, error)
	// Index returns the place of an entry, given its bytes. The error wraps fs.ErrNotExist
	// if the log does not have it.
	Index(ctx context.Context, entry []byte) (uint64, error)
	// Inclusion returns the audit path of the entry at index in the tree of that size, from
	// the leaf up (RFC 6962, section 2.1.1).
	Inclusion(ctx context.Context, index, size uint64) ([]Hash, error)
	// Consistency returns the proof that the tree of size to continues that of size from
	// (RFC 6962, section 2.1.2). It is empty if from is 0 or to.
	Consistency(ctx context.Context, from, to uint64) ([]Hash, error)
}

// maxCheckpoint bounds a checkpoint with all its cosignatures, in bytes.
const maxCheckpoint = 64 << 10

// Checkpoint is what a log's signed note says of its tree (C2SP tlog-checkpoint).
type Checkpoint struct {
	Origin string // names the log: the name of the host's key
	Size   uint64 // entries
	Root   Hash
}

// ParseCheckpoint reads the text of a checkpoint without its signatures: three lines. Extension lines,
// which C2SP tlog-checkpoint allows, are refused: no log of Custody's has any.
func ParseCheckpoint(text string) (Checkpoint, error) {
	lines := strings.Split(text, "\n")
	if len(lines) != 4 || lines[3] != "" || !keyNames.MatchString(lines[0]) {
		return Checkpoint{}, errors.New("checkpoint is not a name, a size and a root on three lines")
	}
	c := Checkpoint{Origin: lines[0]}
	var err error
	if c.Size, err = strconv.ParseUint(lines[1], 10, 64); err != nil || utoa(c.Size) != lines[1] {
		return Checkpoint{}, fmt.Errorf("checkpoint's size %.40q is not a number", lines[1])
	}
	if c.Root, err = parseHash64(lines[2]); err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint's root: %w", err)
	}
	return c, nil
}

// parseHash64 reads a digest in base64, in the one form that encoders give it.
func parseHash64(s string) (h Hash, err error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || len(raw) != len(h) {
		return h, fmt.Errorf("%.60q is not a digest in base64", s)
	}
	return Hash(raw), nil
}

// unverified reads a note without checking its signatures.
func unverified(signed []byte) (*note.Note, error) {
	n, err := openNote(signed, note.VerifierList())
	var open *note.UnverifiedNoteError
	if errors.As(err, &open) {
		return open.Note, nil
	}
	return n, err
}
