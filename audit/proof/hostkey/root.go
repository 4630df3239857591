package hostkey

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/custody-project/custody/audit/durable"
)

const RootFile = "root.key" // signer in note format, mode 0600

// Files of a fleet's root key, in a separate directory.
const (
	RootPublicFile = "root.pub" // verifier in note format
)

// NewRoot creates a fleet's root key in Dir, encrypted by Lock, and returns its public half. It refuses to replace one.
func (f Locked) NewRoot(name string) (public string, err error) {
	if name == "" || strings.ContainsAny(name, "+ \t\r\n") {
		return "", fmt.Errorf("%q cannot name a key: no spaces and no plus sign", name)
	}
	if _, err := os.Lstat(filepath.Join(f.Dir, RootPublicFile)); err == nil {
		return "", fmt.Errorf("%s already has a fleet's root key: %w", f.Dir, fs.ErrExist)
	}
	if err := f.create(RootFile, name); err != nil {
		return "", fmt.Errorf("make the fleet's root key: %w", err)
	}
	k, err := f.load(RootFile)
	if err == nil {
		err = durable.Replace(filepath.Join(f.Dir, RootPublicFile), []byte(k.Public+"\n"), 0o644)
	}
	if err != nil {
		return "", fmt.Errorf("make the fleet's root key: %w", err)
	}
	return k.Public, nil
}

// Root returns the fleet's root key in Dir.
func (f Locked) Root() (Key, error) { return f.load(RootFile) }

// InClear is the Lock of keys that are not encrypted.
func InClear() Lock { return inClear{} }
