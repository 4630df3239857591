package state

import (
	"bytes"
	"context"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/internal/regular"
)

const (
	keyPrefix  = "custody-state-key-1:" // then the key in base64
	maxKeyFile = 4 << 10
	keyIDSize  = 8
)

// KeyFile is a Wrapper with the key in the file of this path, which its first Wrap creates. Wrapped keys are encrypted with
// XChaCha20-Poly1305; the ID of the key precedes them.
type KeyFile string

var _ Wrapper = KeyFile("")

// Wrap implements Wrapper. Several processes may create the key concurrently: all use the same.
func (k KeyFile) Wrap(_ context.Context, key []byte) ([]byte, error) {
	wrapped, err := k.wrap(key)
	if errors.Is(err, fs.ErrNotExist) {
		if err = k.create(); err == nil {
			return k.wrap(key)
		}
		err = fmt.Errorf("key of paused states: %w", err)
	}
	return wrapped, err
}

func (k KeyFile) wrap(key []byte) ([]byte, error) {
	aead, id, err := k.load()
	if err != nil {
		return nil, fmt.Errorf("key of paused states: %w", err)
	}
	nonce := make([]byte, chacha20poly1305.NonceSizeX)
	rand.Read(nonce)
	return aead.Seal(append(id, nonce...), nonce, key, id), nil
}

// SharedKeyFile is a KeyFile that Wrap does not create: several hosts share the key, so one creates it and the others get a copy.
type SharedKeyFile string

var _ Wrapper = SharedKeyFile("")

// Create creates the key unless it exists.
func (k SharedKeyFile) Create() error {
	if err := KeyFile(k).create(); err != nil {
		return fmt.Errorf("create a shared key of paused states: %w", err)
	}
	return nil
}

// Wrap implements Wrapper.
func (k SharedKeyFile) Wrap(_ context.Context, key []byte) ([]byte, error) {
	wrapped, err := KeyFile(k).wrap(key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w (copy %s from a host that has it)", ErrNoKey, string(k))
	}
	return wrapped, err
}

// Unwrap implements Wrapper.
func (k SharedKeyFile) Unwrap(ctx context.Context, blob []byte) ([]byte, error) {
	return KeyFile(k).Unwrap(ctx, blob)
}

// Unwrap implements Wrapper.
func (k KeyFile) Unwrap(_ context.Context, blob []byte) ([]byte, error) {
	if len(blob) < keyIDSize+chacha20poly1305.NonceSizeX {
		return nil, ErrAltered
	}
	aead, id, err := k.load()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w (%w)", ErrNoKey, err)
	}
	if err != nil {
		return nil, fmt.Errorf("key of paused states: %w", err)
	}
	if !bytes.Equal(id, blob[:keyIDSize]) {
		return nil, fmt.Errorf("%w (it was encrypted with the key %x, and %s has the key %x)", ErrNoKey, blob[:keyIDSize], string(k), id)
	}
	nonce, sealed := blob[keyIDSize:][:chacha20poly1305.NonceSizeX], blob[keyIDSize+chacha20poly1305.NonceSizeX:]
	key, err := aead.Open(nil, nonce, sealed, id)
	if err != nil {
		return nil, ErrAltered
	}
	return key, nil
}

// load reads the key, and returns its ID.
func (k KeyFile) load() (cipher.AEAD, []byte, error) {
	f, err := openFile(string(k), os.O_RDONLY)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, nil, fmt.Errorf("%s has mode %#o, and others can read it: chmod 600 it; if others may have read it, delete it and all paused sandboxes", string(k), info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, nil, err
	}
	defer clear(text)
	encoded, found := strings.CutPrefix(strings.TrimSpace(string(text)), keyPrefix)
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if !found || err != nil || len(raw) != chacha20poly1305.KeySize {
		return nil, nil, fmt.Errorf("%s is not a key of paused states: restore it, or delete it and all paused sandboxes", string(k))
	}
	defer clear(raw)
	aead, err := chacha20poly1305.NewX(raw)
	sum := sha256.Sum256(append([]byte("custody state key id\n"), raw...))
	return aead, sum[:keyIDSize:keyIDSize], err
}

// create creates the key unless another process was faster. The file is linked into place when it is complete.
func (k KeyFile) create() error {
	dir := filepath.Dir(string(k))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	raw := make([]byte, chacha20poly1305.KeySize)
	rand.Read(raw)
	temp, err := durable.Temp(dir, filepath.Base(string(k)), []byte(keyPrefix+base64.StdEncoding.EncodeToString(raw)+"\n"), 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(temp)
	if err := os.Link(temp, string(k)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return durable.SyncDir(dir)
}

// openFile opens a regular file. It refuses a symbolic link.
func openFile(path string, flag int) (*os.File, error) {
	f, err := regular.OpenFile(path, flag|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link: find out who put it there, and move it away", path)
	}
	return f, err
}
