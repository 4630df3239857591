package proof

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/internal/regular"
)

// The files of the host's key, below CUSTODY_HOME/keys.
const (
	KeyFile    = "host.key" // signer in note format, mode 0600
	PublicFile = "host.pub" // verifier in note format: this is what auditors are given
)

const algEd25519 = 1 // of the note format

// KeyModeError is a private key that others can read.
type KeyModeError struct {
	Path string
	Mode fs.FileMode
}

// Error implements error.
func (e *KeyModeError) Error() string {
	return fmt.Sprintf("%s has mode %#o: others can read or change the host's signing key", e.Path, e.Mode.Perm())
}

// Hint says what to do.
func (e *KeyModeError) Hint() string {
	return fmt.Sprintf("chmod 600 %s; if others may have read it, move it away so that a new one is made", e.Path)
}

// Key is the host's signing key and what verifies it.
type Key struct {
	note.Signer
	Public string // verifier in note format: name+hash+key
}

// Verifier returns what verifies the key's signatures.
func (k Key) Verifier() (note.Verifier, error) { return note.NewVerifier(k.Public) }

// KeySource is where a host's signing key is: a file, or a service that signs and keeps the
// key to itself. One that is not a file keeps the public half in the same places as FileKey.
type KeySource interface {
	// Key returns the key that signs now.
	Key(ctx context.Context) (Key, error)
	// Rotate gives the host a new key of the same name, and returns the statement that the
	// old one signed. If it fails or its process dies, the host has a key that works, and
	// calling Rotate again goes on with the rotation that was begun.
	Rotate(ctx context.Context) (statement []byte, err error)
}

// FileKey is the key in a directory, usually CUSTODY_HOME/keys.
type FileKey string

// Key implements KeySource.
func (dir FileKey) Key(context.Context) (Key, error) { return LoadOrCreateKey(string(dir)) }

// Rotate implements KeySource.
func (dir FileKey) Rotate(context.Context) ([]byte, error) { return Rotate(string(dir)) }

// LoadOrCreateKey returns the key in dir, usually CUSTODY_HOME/keys, and makes
// dir and key on first use. Several processes may do that at once: all get the same key.
func LoadOrCreateKey(dir string) (Key, error) {
	for try := 0; ; try++ {
		k, err := loadKey(filepath.Join(dir, KeyFile))
		if errors.Is(err, fs.ErrNotExist) {
			if err := createKey(dir, KeyFile, keyName()); err != nil {
				return Key{}, fmt.Errorf("create host key: %w", err)
			}
			k, err = loadKey(filepath.Join(dir, KeyFile))
		}
		if err != nil {
			return Key{}, err
		}
		err = PublishKey(dir, k.Public)
		if errors.Is(err, errStale) && try < 5 { // it was rotated since it was read
			continue
		}
		if err != nil {
			return Key{}, err
		}
		return k, nil
	}
}

// errStale says that a key has been rotated.
var errStale = errors.New("the host's key was retired, and its successor is published")

// PublishKey keeps the public half of the host's key in dir, where others look for it. It
// refuses to replace that of another key, unless statements in dir lead from that one to this.
func PublishKey(dir, vkey string) error {
	path := filepath.Join(dir, PublicFile)
	have, err := regular.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return replaceFile(path, 0o644, vkey+"\n")
	}
	if err != nil {
		return fmt.Errorf("publish host key: %w", err)
	}
	was := strings.TrimSpace(string(have))
	if was == vkey {
		return nil
	}
	retired, err := Retired(dir)
	if err != nil {
		return err
	}
	switch {
	case leads(retired, was, vkey): // a rotation was cut off before its last step
		return replaceFile(path, 0o644, vkey+"\n")
	case leads(retired, vkey, was):
		return fmt.Errorf("%s: %w: put the newest %s in place", dir, errStale, KeyFile)
	}
	return fmt.Errorf("%s does not belong to the host's key %.40s...: move it away if the key is the right one", path, vkey)
}

func loadKey(path string) (Key, error) {
	f, err := regular.Open(path)
	if err != nil {
		return Key{}, fmt.Errorf("load host key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Key{}, fmt.Errorf("load host key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return Key{}, &KeyModeError{Path: path, Mode: info.Mode()}
	}
	text := make([]byte, 4096)
	n, err := f.Read(text)
	if err != nil {
		return Key{}, fmt.Errorf("load host key %s: %w", path, err)
	}
	return parseKey(path, strings.TrimSpace(string(text[:n])))
}

// parseKey derives the public half; errors never quote the key.
func parseKey(path, text string) (Key, error) {
	signer, err := note.NewSigner(text)
	if err != nil {
		return Key{}, fmt.Errorf("host key %s is not a signing key in note format", path)
	}
	// PRIVATE+KEY+name+hash+base64, and base64 may hold a '+' of its own.
	raw, err := base64.StdEncoding.DecodeString(strings.SplitN(text, "+", 5)[4])
	if err != nil || len(raw) != 1+ed25519.SeedSize || raw[0] != algEd25519 {
		return Key{}, fmt.Errorf("host key %s is not an Ed25519 key", path)
	}
	public := ed25519.NewKeyFromSeed(raw[1:]).Public().(ed25519.PublicKey)
	vkey, err := note.NewEd25519VerifierKey(signer.Name(), public)
	return Key{Signer: signer, Public: vkey}, err
}

// createKey makes a key unless another process was faster. The file appears
// whole or not at all: it is linked into place.
func createKey(dir, file, name string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	skey, _, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		return err
	}
	temp, err := writeTemp(dir, file, 0o600, skey+"\n")
	if err != nil {
		return err
	}
	defer os.Remove(temp)
	err = os.Link(temp, filepath.Join(dir, file))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return durable.SyncDir(dir)
}

// keyName is "custody-" and the host's name, in the characters a note allows.
func keyName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	return "custody-" + strings.Map(func(r rune) rune {
		if r <= ' ' || r == '+' || r > '~' {
			return '-'
		}
		return r
	}, host)
}

// replaceFile puts a whole file in place, durable when it returns.
func replaceFile(path string, mode fs.FileMode, text string) error {
	dir := filepath.Dir(path)
	temp, err := writeTemp(dir, filepath.Base(path), mode, text)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(temp, path); err != nil {
		os.Remove(temp)
		return fmt.Errorf("write %s: %w", path, err)
	}
	return durable.SyncDir(dir)
}

// writeTemp returns the path of a new durable file beside where it is to go.
func writeTemp(dir, name string, mode fs.FileMode, text string) (string, error) {
	f, err := os.CreateTemp(dir, "."+name+".*")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}
