package host

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/agekey"
	"github.com/custody-project/custody/audit/proof/agentkey"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/transit"
	"github.com/custody-project/custody/internal/regular"
)

// The kinds of storage for the signing key. key: in host.yaml begins with one of them.
const (
	keyInFile  = "file"          // keys/host.key, in the clear
	keyInAge   = "age"           // age:FILE, age:credential/NAME, age:passphrase
	keyInVault = "vault-transit" // vault-transit:MOUNT/NAME
	keyInAgent = "ssh-agent"     // ssh-agent:SOCKET
)

// keyKind is the storage of the signing key.
type keyKind struct {
	name  string // one of the kinds above
	where string // the text after the colon
}

func parseKeyKind(key string) (keyKind, error) {
	name, where, has := strings.Cut(key, ":")
	k := keyKind{name, where}
	switch {
	case key == "", key == keyInFile:
		return keyKind{name: keyInFile}, nil
	case name == keyInAge && has:
		if err := agekey.Check(where); err != nil {
			return k, fmt.Errorf("key: age: %w", err)
		}
		return k, nil
	case name == keyInAgent && has:
		if err := agentkey.Check(where); err != nil {
			return k, fmt.Errorf("key: %s: %w", keyInAgent, err)
		}
		return k, nil
	case name == keyInVault && has:
		if err := transit.Check(k.vault()); err != nil {
			return k, fmt.Errorf("key: %s: %w", keyInVault, err)
		}
		return k, nil
	}
	return k, fmt.Errorf("key %.80q: want file, age:FILE, age:credential/NAME, age:passphrase, vault-transit:MOUNT/NAME, or ssh-agent:SOCKET", key)
}

// vault returns the engine's mount, empty for the default, and the name of the key in it.
func (k keyKind) vault() (mount, name string) {
	i := strings.LastIndex(k.where, "/")
	return k.where[:max(i, 0)], k.where[i+1:]
}

// elsewhere reports whether another process has the key. It can be unavailable.
func (k keyKind) elsewhere() bool { return k.name == keyInVault || k.name == keyInAgent }

// String describes the storage for users.
func (k keyKind) String() string {
	switch k.name {
	case keyInAge:
		return "encrypted with age, opened by " + k.where
	case keyInVault:
		return "in Vault, " + k.where
	case keyInAgent:
		return "by the SSH agent at " + k.where
	}
	return "in a file, in the clear"
}

// Kept describes where the signing key is stored.
func (ks Keys) Kept() string {
	k, _ := parseKeyKind(ks.host.config.Key) // loadConfig has checked it
	return k.String()
}

// InClear returns the path of a private key that is stored in the clear although host.yaml names another kind; empty if
// there is none.
func (ks Keys) InClear() string {
	k, _ := parseKeyKind(ks.host.config.Key)
	path := ks.host.keys(hostkey.KeyFile)
	if _, err := os.Lstat(path); err != nil || k.name == keyInFile {
		return ""
	}
	return path
}

// sourceOf returns the source of a key. It opens nothing yet.
func (ks Keys) sourceOf(k keyKind) (hostkey.Source, error) {
	dir := ks.host.keys()
	switch k.name {
	case keyInFile:
		return hostkey.File(dir), nil
	case keyInAge:
		lock, err := agekey.New(agekey.Config{From: k.where, Dir: dir})
		return hostkey.Locked{Dir: dir, Lock: lock}, err
	case keyInAgent:
		return agentkey.New(agentkey.Config{Socket: k.where, Dir: dir})
	case keyInVault:
		c := transit.Config{Dir: dir, Host: ks.publishedName()}
		c.Mount, c.Name = k.vault()
		if w := ks.host.Outside.Key; w != nil {
			c.To = w.To
		}
		return transit.New(c)
	}
	return nil, errors.New("unknown kind of key storage: " + k.name)
}

// publishedName returns the name of the key in host.pub; empty if there is none yet.
func (k Keys) publishedName() string {
	public, err := regular.ReadFile(k.host.keys(hostkey.PublicFile))
	if err != nil {
		return ""
	}
	v, err := note.NewVerifier(strings.TrimSpace(string(public)))
	if err != nil {
		return ""
	}
	return v.Name()
}
