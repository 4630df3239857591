package witness

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	f_note "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/internal/regular"
)

// The files that Generate makes.
const (
	KeyFile    = "witness.key" // the signing key
	PublicFile = "witness.pub" // the verifier key, for policies
)

// Generate makes a witness's directory with a new key and an empty state, and returns the
// public key (a vkey of type 0x04, C2SP tlog-cosignature). It returns an error if the directory already has a witness:
// an empty state under the same key could be made to contradict the old one.
func Generate(dir, name string) (vkey string, err error) {
	if name == "" || strings.ContainsAny(name, "+ \t\r\n") {
		return "", fmt.Errorf("witness: %q cannot name a key: no spaces and no plus sign", name)
	}
	skey, plain, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		return "", fmt.Errorf("witness: %w", err)
	}
	if vkey, err = f_note.VKeyToCosignatureV1(plain); err != nil {
		return "", fmt.Errorf("witness: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("witness: %w", err)
	}
	if err := os.Mkdir(filepath.Join(dir, stateDir), 0o700); errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("witness: %s already has a witness", dir)
	} else if err != nil {
		return "", fmt.Errorf("witness: %w", err)
	}
	err = errors.Join(
		create(filepath.Join(dir, KeyFile), skey+"\n", 0o600),
		create(filepath.Join(dir, PublicFile), vkey+"\n", 0o644),
		durable.SyncDir(dir))
	if err != nil {
		return "", fmt.Errorf("witness: %w", err)
	}
	return vkey, nil
}

// Load reads the key that Generate made.
func Load(dir string) (note.Signer, note.Verifier, error) {
	data, err := regular.ReadFile(filepath.Join(dir, KeyFile))
	if err != nil {
		return nil, nil, fmt.Errorf("witness: %w", err)
	}
	s, err := f_note.NewSignerForCosignatureV1(strings.TrimSpace(string(data)))
	if err != nil {
		return nil, nil, fmt.Errorf("witness: %s: %w", KeyFile, err)
	}
	return s, s.Verifier(), nil
}

// create durably creates a file, which must not exist.
func create(path, text string, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}
