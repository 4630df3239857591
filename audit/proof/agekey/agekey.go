package agekey

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"filippo.io/age"

	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/internal/regular"
)

// Suffix ends the names of encrypted keys.
const Suffix = ".age"

const (
	passphrase   = "passphrase"
	credential   = "credential/"
	maxPlain     = 64 << 10 // bytes of a decrypted key
	maxIdentity  = 64 << 10 // bytes of a file with identities
	minWord      = 12       // bytes of a passphrase
	workFactor   = 18       // of scrypt, as the age program: about a second
	maxWorkToTry = 22
)

// Config names what decrypts the key.
type Config struct {
	// From is the absolute path of a file with age identities, "credential/NAME" for such a
	// file among a service's credentials of systemd, or "passphrase".
	From string
	Dir  string // where the key is: CUSTODY_HOME/keys. An identity below its parent is refused
	// Getenv reads CREDENTIALS_DIRECTORY; default os.Getenv.
	Getenv func(string) string
	// Ask returns what the user types after prompt, without echo; default: on the terminal of this process.
	Ask func(prompt string) (string, error)
}

// Lock is a hostkey.Lock. It reads identities again for each operation, and asks for a passphrase once.
type Lock struct {
	config Config

	mu   sync.Mutex // guards word, and lets one goroutine ask
	word string
}

var _ hostkey.Lock = (*Lock)(nil)

// Error is the error if a key cannot be decrypted, or its identity or passphrase is missing.
type Error struct {
	Err  error
	hint string
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Hint returns the remedy.
func (e *Error) Hint() string { return e.hint }

// Check checks a Config's From, without reading the source that it names.
func Check(from string) error {
	name, isCredential := strings.CutPrefix(from, credential)
	switch {
	case from == passphrase, filepath.IsAbs(from) && filepath.Clean(from) == from:
		return nil
	case isCredential && name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00"):
		return nil
	}
	return fmt.Errorf("%.80q: want passphrase, credential/NAME, or the absolute path of a file with an age identity", from)
}

// New returns a Lock. It reads nothing and does not ask for a passphrase yet.
func New(c Config) (*Lock, error) {
	if err := Check(c.From); err != nil {
		return nil, err
	}
	if c.Getenv == nil {
		c.Getenv = os.Getenv
	}
	if c.Ask == nil {
		c.Ask = askTerminal
	}
	return &Lock{config: c}, nil
}

// Suffix implements hostkey.Lock.
func (l *Lock) Suffix() string { return Suffix }

// Seal implements hostkey.Lock.
func (l *Lock) Seal(key []byte) ([]byte, error) {
	to, err := l.recipients()
	if err != nil {
		return nil, err
	}
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, to...)
	if err == nil {
		_, err = w.Write(key)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("encrypt the host's key: %w", err)
	}
	return sealed.Bytes(), nil
}

// Open implements hostkey.Lock.
func (l *Lock) Open(sealed []byte) ([]byte, error) {
	if l.config.From == passphrase {
		return l.openWithWord(sealed)
	}
	ids, err := l.identities()
	if err != nil {
		return nil, err
	}
	return l.decrypt(sealed, ids...)
}

func (l *Lock) decrypt(sealed []byte, ids ...age.Identity) ([]byte, error) {
	var none *age.NoIdentityMatchError
	r, err := age.Decrypt(bytes.NewReader(sealed), ids...)
	switch {
	case errors.As(err, &none) && l.config.From == passphrase:
		return nil, &Error{errors.New("this passphrase does not open it"), "type the passphrase with which the key was made; if the key was encrypted to an identity, name that as key: in host.yaml"}
	case errors.As(err, &none):
		return nil, &Error{fmt.Errorf("the identity in %s does not open it", l.config.From), "name the identity to which the key was encrypted as key: in host.yaml"}
	case err != nil:
		return nil, fmt.Errorf("it is not a key that age encrypted: %w", err)
	}
	key, err := io.ReadAll(io.LimitReader(r, maxPlain+1))
	if err != nil || len(key) > maxPlain {
		return nil, errors.Join(errors.New("the encrypted key is damaged"), err)
	}
	return key, nil
}

// recipients are those of Open's identities.
func (l *Lock) recipients() ([]age.Recipient, error) {
	if l.config.From == passphrase {
		return l.newWord()
	}
	ids, err := l.identities()
	if err != nil {
		return nil, err
	}
	var to []age.Recipient
	for _, id := range ids {
		switch id := id.(type) {
		case *age.X25519Identity:
			to = append(to, id.Recipient())
		case *age.HybridIdentity:
			to = append(to, id.Recipient())
		}
	}
	return to, nil
}

// identities reads the file of identities.
func (l *Lock) identities() ([]age.Identity, error) {
	path, err := l.path()
	if err != nil {
		return nil, err
	}
	text, err := readIdentities(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &Error{fmt.Errorf("the identity that decrypts the host's key is missing: %w", err),
			"attach the medium or pass the credential to the service; Custody signs nothing without it. A new identity: custody key identity FILE"}
	}
	if err != nil {
		return nil, err
	}
	defer clear(text)
	ids, err := age.ParseIdentities(bytes.NewReader(text))
	if err != nil { // age's error may quote the line
		return nil, &Error{fmt.Errorf("%s has no age identity", path), "custody key identity FILE makes one (age-keygen -o FILE likewise)"}
	}
	return ids, nil
}

// path returns the path of the file of identities.
func (l *Lock) path() (string, error) {
	if name, ok := strings.CutPrefix(l.config.From, credential); ok {
		dir := l.config.Getenv("CREDENTIALS_DIRECTORY")
		if !filepath.IsAbs(dir) {
			return "", &Error{fmt.Errorf("the credential %s opens the host's key, and this process has no credentials", name),
				fmt.Sprintf("run it as a service of systemd with LoadCredentialEncrypted=%s:FILE, or with systemd-run -p; CREDENTIALS_DIRECTORY is set there", name)}
		}
		return filepath.Join(dir, name), nil
	}
	if home := filepath.Dir(l.config.Dir); l.config.Dir != "" && strings.HasPrefix(l.config.From, home+"/") {
		return "", &Error{fmt.Errorf("%s is stored with the key that it decrypts, and so in the same copies and backups", l.config.From),
			"keep the identity outside of CUSTODY_HOME, on another medium if possible"}
	}
	return l.config.From, nil
}

func readIdentities(path string) ([]byte, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, &Error{fmt.Errorf("%s has mode %#o: others can read the identity that decrypts the host's key", path, info.Mode().Perm()), "chmod 600 " + path + "; if others may have read it, make another one and rotate the key"}
	}
	text, err := io.ReadAll(io.LimitReader(f, maxIdentity+1))
	if err == nil && len(text) > maxIdentity {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxIdentity)
	}
	return text, err
}

// NewIdentity makes a file with a new identity, mode 0600, which must not exist. It returns the
// recipient, which is public.
func NewIdentity(path string) (recipient string, err error) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return "", fmt.Errorf("make an identity: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("make an identity: %w", err)
	}
	_, err = fmt.Fprintf(f, "# opens the signing key of a Custody host\n# public key: %s\n%s\n", id.Recipient(), id)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", fmt.Errorf("make an identity: %w", errors.Join(err, os.Remove(path)))
	}
	return id.Recipient().String(), nil
}
