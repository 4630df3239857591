// Package hostkey stores a host's signing key in files, and replaces it: the old key signs a statement that names the new
// one. Packages agekey, agentkey and transit are other sources of keys.
package hostkey

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
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
	PublicFile = "host.pub" // verifier in note format, for auditors
)

const (
	algEd25519 = 1 // of the note format
	maxKeyFile = 64 << 10
)

// ModeError is a private key that others can read.
type ModeError struct {
	Path string
	Mode fs.FileMode
}

// Error implements error.
func (e *ModeError) Error() string {
	return fmt.Sprintf("%s has mode %#o: others can read or change the host's signing key", e.Path, e.Mode.Perm())
}

// Hint returns the remedy.
func (e *ModeError) Hint() string {
	return fmt.Sprintf("chmod 600 %s; if others may have read it, move it away so that a new one is made", e.Path)
}

// Key is the host's signing key with its verifier.
type Key struct {
	note.Signer
	Public string // verifier in note format: name+hash+key
}

// Verifier returns what verifies the key's signatures.
func (k Key) Verifier() (note.Verifier, error) { return note.NewVerifier(k.Public) }

// Doubtful is a signer in another process that does not believe its caller everything.
type Doubtful interface {
	// With returns a signer that shows a signed manifest along with each statement which rests on it.
	With(manifest []byte) note.Signer
}

// With returns the key's signer for a statement that rests on a signed manifest.
func (k Key) With(manifest []byte) note.Signer {
	if d, ok := k.Signer.(Doubtful); ok {
		return d.With(manifest)
	}
	return k.Signer
}

// Source provides a host's signing key: a file, or a service that signs and does not reveal the
// key. One that is not a file stores the public half in the same files as File.
type Source interface {
	// Key returns the current signing key. It creates one only for a host that never had a key.
	Key(ctx context.Context) (Key, error)
	// Rotate gives the host a new key with the same name, and returns the statement that the
	// old one signed. After an error or a crash the host has a usable key, and
	// calling Rotate again continues the rotation.
	Rotate(ctx context.Context) (stated []byte, err error)
	// TakeOver is Rotate for an old key of another source: this source has the new key. The other
	// source's copy of the old private key stays; see Drop.
	TakeOver(ctx context.Context, old Key) (stated []byte, err error)
	// Finish completes a rotation that was interrupted after its statement and before the new key signed. Otherwise it does nothing.
	Finish(ctx context.Context) error
}

// Lock encrypts private keys in files. It is safe for concurrent use.
type Lock interface {
	// Suffix ends the names of the files that it encrypted, such as ".age".
	Suffix() string
	// Seal encrypts a private key for its file.
	Seal(key []byte) ([]byte, error)
	// Open decrypts what Seal returned. The caller may change what it returns.
	Open(sealed []byte) ([]byte, error)
}

// File is the unencrypted key in a directory, usually CUSTODY_HOME/keys.
type File string

// Key implements Source.
func (dir File) Key(context.Context) (Key, error) { return LoadOrCreate(string(dir)) }

// Rotate implements Source.
func (dir File) Rotate(context.Context) ([]byte, error) { return Rotate(string(dir)) }

// TakeOver implements Source.
func (dir File) TakeOver(ctx context.Context, old Key) ([]byte, error) {
	return Locked{string(dir), inClear{}}.TakeOver(ctx, old)
}

// Finish implements Source.
func (dir File) Finish(ctx context.Context) error {
	return Locked{string(dir), inClear{}}.Finish(ctx)
}

// Locked is a key in the directory Dir that Lock encrypts. Only this process's memory has the
// unencrypted private key.
type Locked struct {
	Dir  string
	Lock Lock
}

// inClear is a Lock that does not encrypt.
type inClear struct{}

func (inClear) Suffix() string                     { return "" }
func (inClear) Seal(key []byte) ([]byte, error)    { return key, nil }
func (inClear) Open(sealed []byte) ([]byte, error) { return sealed, nil }

// LoadOrCreate returns the key in dir, usually CUSTODY_HOME/keys, and creates dir and key on first use. Several
// processes may call it concurrently: all get the same key.
func LoadOrCreate(dir string) (Key, error) {
	return Locked{dir, inClear{}}.Key(context.Background())
}

func (f Locked) path(file string) string { return filepath.Join(f.Dir, file+f.Lock.Suffix()) }

// Key implements Source. Several processes may create the first key concurrently: all get the same.
func (f Locked) Key(context.Context) (Key, error) {
	for try := 0; ; try++ {
		k, err := f.first()
		if err != nil {
			return Key{}, err
		}
		err = Publish(f.Dir, k.Public)
		if errors.Is(err, errStale) && try < 5 { // rotated since it was read
			continue
		}
		if err != nil {
			return Key{}, err
		}
		return k, nil
	}
}

// first returns the key, and creates it if the host never had one.
func (f Locked) first() (Key, error) {
	k, err := f.load(KeyFile)
	if !errors.Is(err, errAbsent) {
		return k, err
	}
	if _, err := os.Lstat(filepath.Join(f.Dir, PublicFile)); err == nil {
		k, err := f.load(KeyFile) // another process may have created it
		if errors.Is(err, errAbsent) {
			return Key{}, &NoKeyError{f.path(KeyFile)}
		}
		return k, err
	}
	if err := f.create(KeyFile, DefaultName()); err != nil {
		return Key{}, fmt.Errorf("create host key: %w", err)
	}
	return f.load(KeyFile)
}

// NoKeyError is the error of a host that has a public key, and no private key.
type NoKeyError struct{ Path string }

// Error implements error.
func (e *NoKeyError) Error() string {
	return fmt.Sprintf("%s does not exist, but %s beside it shows that this host has a key", e.Path, PublicFile)
}

// Hint returns the remedy.
func (e *NoKeyError) Hint() string {
	return "if the key is stored elsewhere, set its driver as key: in host.yaml, or move it here with custody key rotate --from; if it is lost, move the directories keys and log away to begin with a new one"
}

// errAbsent means that a file with a private key is missing. fs.ErrNotExist may come from another file that is needed
// to open the key.
var errAbsent = errors.New("no private key")

// errStale means that a key has been rotated.
var errStale = errors.New("the host's key was retired, and its successor is published")

// Publish stores the public half of the host's key in dir for other programs. It
// refuses to replace that of another key, unless statements in dir lead from that key to this one.
func Publish(dir, vkey string) error {
	path := filepath.Join(dir, PublicFile)
	have, err := regular.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return durable.ReplaceShared(path, []byte(vkey+"\n"), 0o644)
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
	case leads(retired, was, vkey): // a rotation was interrupted before its last step
		return durable.ReplaceShared(path, []byte(vkey+"\n"), 0o644)
	case leads(retired, vkey, was):
		return fmt.Errorf("%s: %w: put the newest %s in place", dir, errStale, KeyFile)
	}
	return fmt.Errorf("%s does not belong to the host's key %.40s...: move it away if the key is the right one", path, vkey)
}

// load reads one of the private keys and decrypts it.
func (f Locked) load(file string) (Key, error) {
	path := f.path(file)
	sealed, err := readPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Key{}, fmt.Errorf("%w: %w", errAbsent, err)
	}
	if err != nil {
		return Key{}, err
	}
	text, err := f.Lock.Open(sealed)
	if err != nil {
		return Key{}, fmt.Errorf("load host key %s: %w", path, err)
	}
	defer clear(text) // parsing made copies, which stay in memory until it is reused
	return parseKey(path, strings.TrimSpace(string(text)))
}

// readPrivate reads a small file that only its owner may read.
func readPrivate(path string) ([]byte, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load host key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("load host key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, &ModeError{Path: path, Mode: info.Mode()}
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err == nil && len(text) > maxKeyFile {
		err = fmt.Errorf("larger than %d bytes", maxKeyFile)
	}
	if err != nil {
		return nil, fmt.Errorf("load host key %s: %w", path, err)
	}
	return text, nil
}

// parseKey derives the public half; its errors never quote the key.
func parseKey(path, text string) (Key, error) {
	signer, err := note.NewSigner(text)
	if err != nil {
		return Key{}, fmt.Errorf("host key %s is not a signing key in note format", path)
	}
	// PRIVATE+KEY+name+hash+base64, and base64 may contain a '+'.
	raw, err := base64.StdEncoding.DecodeString(strings.SplitN(text, "+", 5)[4])
	if err != nil || len(raw) != 1+ed25519.SeedSize || raw[0] != algEd25519 {
		return Key{}, fmt.Errorf("host key %s is not an Ed25519 key", path)
	}
	public := ed25519.NewKeyFromSeed(raw[1:]).Public().(ed25519.PublicKey)
	vkey, err := note.NewEd25519VerifierKey(signer.Name(), public)
	return Key{Signer: signer, Public: vkey}, err
}

// create creates a key unless another process was faster. The file appears
// complete or not at all: it is linked into place.
func (f Locked) create(file, name string) error {
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return err
	}
	skey, _, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		return err
	}
	sealed, err := f.Lock.Seal([]byte(skey + "\n"))
	if err != nil {
		return err
	}
	temp, err := durable.Temp(f.Dir, file, sealed, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(temp)
	err = os.Link(temp, f.path(file))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return durable.SyncDir(f.Dir)
}

// DefaultName returns the name of a host's first key: "custody-" and the host name, in the characters that a note allows.
func DefaultName() string {
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
