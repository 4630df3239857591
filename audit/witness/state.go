package witness

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/internal/regular"
)

// ErrState: the witness's state is missing or invalid.
var ErrState = errors.New("the witness's state")

// stateDir has one file for each log: the last checkpoint, with the witness's cosignature, which
// authenticates it.
const stateDir = "logs"

// statePath names the file by the origin's hash, since an origin can be any text.
func statePath(dir, origin string) string {
	sum := sha256.Sum256([]byte(origin))
	return filepath.Join(dir, stateDir, hex.EncodeToString(sum[:])+".checkpoint")
}

// load reads the checkpoint that was cosigned last for a log.
func (w *Witness) load(l *watched) (remembered, error) {
	signed, err := regular.ReadFile(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return remembered{}, nil
	}
	if err != nil {
		return remembered{}, err
	}
	own := note.VerifierList(append([]note.Verifier{w.c.Verifier}, w.c.Older...)...)
	_, at, err := cosignature(signed, own)
	if err != nil {
		return remembered{}, fmt.Errorf("%w: %s: %w", ErrState, l.path, err)
	}
	n, err := note.Open(signed, own)
	if err != nil {
		return remembered{}, err
	}
	h, err := parseHead(n.Text)
	if err != nil || h.origin != l.origin {
		return remembered{}, fmt.Errorf("%w: %s is not that of %.80q", ErrState, l.path, l.origin)
	}
	return remembered{head: h, at: at}, nil
}

// Remembered returns the last checkpoint that was cosigned for a log, with the cosignature, or nil
// if there is none.
func (w *Witness) Remembered(origin string) ([]byte, error) {
	l, ok := w.logs[origin]
	if !ok {
		return nil, fmt.Errorf("witness: the log %.80q is not configured", origin)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	signed, err := regular.ReadFile(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return signed, err
}
