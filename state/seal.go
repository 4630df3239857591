package state

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"

	"filippo.io/age"
)

// Wrapper encrypts the keys of snapshots with a key of the host. Its encryption must be authenticated. It is safe for concurrent use.
type Wrapper interface {
	// Wrap encrypts the key of a snapshot, which has 48 bytes. The result has at most MaxWrapped bytes.
	Wrap(ctx context.Context, key []byte) ([]byte, error)
	// Unwrap returns the key of a result of Wrap. The error is ErrNoKey if the host does not have the key that Wrap used, and ErrAltered
	// if no Wrap returned the blob.
	Unwrap(ctx context.Context, blob []byte) ([]byte, error)
}

// MaxWrapped bounds a wrapped key, in bytes.
const MaxWrapped = 4 << 10

const (
	stanza  = "custody-snapshot"
	fileKey = 16 // bytes of the key of a file of age
)

// seal is what age encrypts a snapshot to. The Wrapper encrypts the file's key together with the digest of the manifest,
// so that the key opens only the file with this manifest.
type seal struct {
	ctx  context.Context
	keys Wrapper
	sum  [sha256.Size]byte
}

var (
	_ age.Recipient = seal{}
	_ age.Identity  = seal{}
)

// Wrap implements age.Recipient.
func (s seal) Wrap(key []byte) ([]*age.Stanza, error) {
	both := slices.Concat(key, s.sum[:])
	defer clear(both)
	blob, err := s.keys.Wrap(s.ctx, both)
	if err == nil && len(blob) > MaxWrapped {
		err = fmt.Errorf("the wrapped key has %d bytes, more than %d", len(blob), MaxWrapped)
	}
	return []*age.Stanza{{Type: stanza, Body: blob}}, err
}

// Unwrap implements age.Identity.
func (s seal) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	if len(stanzas) != 1 || stanzas[0].Type != stanza || len(stanzas[0].Args) > 0 || len(stanzas[0].Body) > MaxWrapped {
		return nil, ErrAltered
	}
	both, err := s.keys.Unwrap(s.ctx, stanzas[0].Body)
	if err != nil {
		return nil, &unwrapError{err}
	}
	if len(both) != fileKey+len(s.sum) || !bytes.Equal(both[fileKey:], s.sum[:]) {
		return nil, altered(errors.New("its key belongs to another manifest"))
	}
	return both[:fileKey], nil
}

// unwrapError is an error of the Wrapper, such as one that is out of reach. It proves nothing about the file.
type unwrapError struct{ error }

// Unwrap returns the Wrapper's error.
func (e *unwrapError) Unwrap() error { return e.error }

// unseal returns the decrypted contents of the file of age in src. Reads of what was altered fail with ErrAltered.
func (s seal) unseal(src io.ReaderAt, size int64) (*plaintext, error) {
	r, n, err := age.DecryptReaderAt(src, size, s)
	var unwrap *unwrapError
	switch {
	case errors.As(err, &unwrap):
		return nil, fmt.Errorf("open the key of the paused state: %w", unwrap.error)
	case err != nil:
		return nil, altered(err)
	}
	return &plaintext{r, n}, nil
}

// plaintext is decrypted while it is read.
type plaintext struct {
	r    io.ReaderAt
	size int64
}

// read fills p from an offset.
func (t *plaintext) read(p []byte, at int64) error {
	if n, err := t.r.ReadAt(p, at); n < len(p) {
		return altered(err)
	}
	return nil
}
