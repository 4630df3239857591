package prooftest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	cosign "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
)

// Witness is a witness's key that cosigns at any time (C2SP tlog-cosignature, cosignature/v1).
type Witness struct {
	note.Verifier
	Key string // public, for policies
	key ed25519.PrivateKey
	at  time.Time
}

// NewWitness makes a key.
func NewWitness(t testing.TB, name string) Witness {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	w := Witness{key: key}
	if w.Key, err = note.NewEd25519VerifierKey(name, public); err == nil {
		w.Verifier, err = cosign.NewVerifierForCosignatureV1(w.Key)
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// On returns a signer that cosigns with that time.
func (w Witness) On(at time.Time) Witness { w.at = at; return w }

// Sign implements note.Signer.
func (w Witness) Sign(msg []byte) ([]byte, error) {
	at := uint64(w.at.Unix())
	sig := binary.BigEndian.AppendUint64(nil, at)
	return append(sig, ed25519.Sign(w.key, fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", at, msg))...), nil
}

// SealedOn is a Sealer with a fixed time.
type SealedOn struct {
	*statement.Sealer
	At time.Time
}

// Seal implements wal.Sealer.
func (s SealedOn) Seal(seg wal.Segment) (leaves, manifest []byte, err error) {
	seg.Time = s.At
	return s.Sealer.Seal(seg)
}

// Past is a list of a log's checkpoints, oldest first. It implements proof.Past.
type Past [][]byte

// First implements proof.Past.
func (p Past) First(_ context.Context, index uint64) (signed, stamp []byte, err error) {
	for _, signed := range p {
		text, _, _ := strings.Cut(string(signed), "\n\n")
		if c, err := statement.ParseCheckpoint(text + "\n"); err == nil && c.Size > index && proof.Dated(signed, nil) {
			return signed, nil, nil
		}
	}
	return nil, nil, fs.ErrNotExist
}
