package transit

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/internal/endpoint"
	"github.com/custody-project/custody/internal/regular"
)

// Config names the Vault and the key that signs. Name and Dir are required.
type Config struct {
	Mount string // of the transit engine; default transit
	Name  string // of the key in Vault
	// Host is the key's name in signatures, which names the host and its log; default Name.
	Host string
	Dir  string // where the public halves are kept: CUSTODY_HOME/keys
	// Getenv reads VAULT_ADDR, VAULT_TOKEN, VAULT_NAMESPACE, VAULT_CACERT, VAULT_CAPATH,
	// VAULT_TLS_SERVER_NAME, VAULT_CLIENT_CERT, VAULT_CLIENT_KEY and HOME (for .vault-token);
	// default os.Getenv.
	Getenv func(string) string
	// To returns what carries requests to Vault; nil: this process.
	To func(endpoint.Server) (http.RoundTripper, error)
}

// Source is a hostkey.Source. It and the keys that it returns are safe for concurrent use.
type Source struct {
	config Config
	client *client
}

var _ hostkey.Source = (*Source)(nil)

// New returns a Source. It does not connect to Vault yet.
func New(c Config) (*Source, error) {
	if c.Mount == "" {
		c.Mount = "transit"
	}
	if c.Host == "" {
		c.Host = c.Name
	}
	if c.Getenv == nil {
		c.Getenv = os.Getenv
	}
	if c.To == nil {
		c.To = func(s endpoint.Server) (http.RoundTripper, error) { return s.Transport() }
	}
	if err := Check(c.Mount, c.Name); err != nil {
		return nil, err
	}
	if _, err := note.NewEd25519VerifierKey(c.Host, make(ed25519.PublicKey, ed25519.PublicKeySize)); err != nil || strings.ContainsAny(c.Host, "+ \n") {
		return nil, fmt.Errorf("%q cannot name a host's key: want no space and no plus", c.Host)
	}
	cl, err := newClient(c)
	if err != nil {
		return nil, err
	}
	return &Source{config: c, client: cl}, nil
}

// Check checks the names of a mount and of a key in it, without connecting to Vault.
func Check(mount, name string) error {
	clean := mount == "" || path.Clean(mount) == mount && !strings.HasPrefix(mount, "/") && !strings.HasPrefix(mount, "..")
	if name == "" || name == "." || name == ".." || !clean || strings.ContainsAny(name+mount, "?#% \n") || strings.Contains(name, "/") {
		return fmt.Errorf("%q at %q is not the name of a key in Vault: want MOUNT/NAME", name, mount)
	}
	return nil
}

// Key implements hostkey.Source: the version that host.pub names, and the newest one on first use.
func (s *Source) Key(ctx context.Context) (hostkey.Key, error) {
	versions, latest, err := s.versions(ctx)
	if err != nil {
		return hostkey.Key{}, err
	}
	public, err := regular.ReadFile(filepath.Join(s.config.Dir, hostkey.PublicFile))
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(s.config.Dir, 0o700); err != nil {
			return hostkey.Key{}, fmt.Errorf("host key in Vault: %w", err)
		}
		return s.key(latest, versions[latest]), hostkey.Publish(s.config.Dir, versions[latest])
	}
	if err != nil {
		return hostkey.Key{}, fmt.Errorf("host key in Vault: %w", err)
	}
	want := strings.TrimSpace(string(public))
	for version, vkey := range versions {
		if vkey == want {
			return s.key(version, vkey), nil
		}
	}
	return hostkey.Key{}, &MismatchError{Name: s.path("keys"), Dir: s.config.Dir}
}

// MismatchError is the error if no version of the key in Vault matches host.pub.
type MismatchError struct{ Name, Dir string }

// Error implements error.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("no version of %s in Vault belongs to %s in %s", e.Name, hostkey.PublicFile, e.Dir)
}

// Hint returns the remedy.
func (e *MismatchError) Hint() string {
	return "the host had a key in a file or another one in Vault before: configure that one again, or run custody key rotate --from, so that it signs the statement about this one"
}

// Rotate implements hostkey.Source. It uses a version that is newer than the current one if there is one, or else requests
// one from Vault. That version signs from the moment host.pub names it.
func (s *Source) Rotate(ctx context.Context) ([]byte, error) {
	old, err := s.Key(ctx)
	if err != nil {
		return nil, err
	}
	now := old.Signer.(*signer).version
	versions, latest, err := s.versions(ctx)
	if err == nil && latest == now {
		if _, err = s.client.call(ctx, "POST", s.path("keys")+"/rotate", map[string]any{}); err == nil {
			versions, latest, err = s.versions(ctx)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("rotate the host's key: %w", err)
	}
	if latest <= now {
		return nil, fmt.Errorf("rotate the host's key: Vault made no new version of %s", s.path("keys"))
	}
	return s.succeed(ctx, old, versions[latest])
}

// Finish implements hostkey.Source.
func (s *Source) Finish(ctx context.Context) error { return hostkey.PublishNext(ctx, s.config.Dir) }

// TakeOver implements hostkey.Source: the successor of old is the newest version in Vault.
func (s *Source) TakeOver(ctx context.Context, old hostkey.Key) ([]byte, error) {
	versions, latest, err := s.versions(ctx)
	if err != nil {
		return nil, fmt.Errorf("take over the host's key: %w", err)
	}
	return s.succeed(ctx, old, versions[latest])
}

// succeed states that next succeeds old, and publishes it.
func (s *Source) succeed(ctx context.Context, old hostkey.Key, next string) ([]byte, error) {
	stated, err := hostkey.Succeed(ctx, s.config.Dir, old, next)
	if err == nil {
		err = hostkey.Publish(s.config.Dir, next)
	}
	if err != nil {
		return nil, fmt.Errorf("rotate the host's key: %w", err)
	}
	return stated, nil
}

func (s *Source) path(what string) string { return s.config.Mount + "/" + what + "/" + s.config.Name }

func (s *Source) key(version int, vkey string) hostkey.Key {
	raw, _ := base64.StdEncoding.DecodeString(strings.SplitN(vkey, "+", 3)[2]) // checked by versions
	return hostkey.Key{Public: vkey, Signer: &signer{source: s, version: version, public: ed25519.PublicKey(raw[1:])}}
}

// versions returns the verifiers of all versions that may still sign, and the newest.
func (s *Source) versions(ctx context.Context) (all map[int]string, latest int, err error) {
	data, err := s.client.call(ctx, "GET", s.path("keys"), nil)
	if err != nil {
		return nil, 0, err
	}
	if kind, _ := data["type"].(string); kind != "ed25519" {
		return nil, 0, fmt.Errorf("%s in Vault is of type %q, and the host's key is ed25519: vault write -f %s type=ed25519", s.path("keys"), kind, s.path("keys"))
	}
	if derived, _ := data["derived"].(bool); derived {
		return nil, 0, fmt.Errorf("%s in Vault derives its keys; the host's key must not", s.path("keys"))
	}
	list, _ := data["keys"].(map[string]any)
	all = map[int]string{}
	for number, value := range list {
		fields, _ := value.(map[string]any)
		text, _ := fields["public_key"].(string)
		public, err := base64.StdEncoding.DecodeString(text)
		version, numErr := strconv.Atoi(number)
		if err != nil || numErr != nil || len(public) != ed25519.PublicKeySize {
			return nil, 0, fmt.Errorf("version %.20q of %s in Vault is not an ed25519 key", number, s.path("keys"))
		}
		if all[version], err = note.NewEd25519VerifierKey(s.config.Host, public); err != nil {
			return nil, 0, err
		}
		latest = max(latest, version)
	}
	if latest == 0 {
		return nil, 0, fmt.Errorf("%s in Vault has no version", s.path("keys"))
	}
	return all, latest, nil
}

// signer signs with one version of the key.
type signer struct {
	source  *Source
	version int
	public  ed25519.PublicKey
}

// Name implements note.Signer.
func (k *signer) Name() string { return k.source.config.Host }

// KeyHash implements note.Signer.
func (k *signer) KeyHash() uint32 {
	sum := sha256.Sum256(append([]byte(k.Name()+"\n\x01"), k.public...))
	return binary.BigEndian.Uint32(sum[:])
}

// Sign implements note.Signer. It retries a few times, and returns an error if its public key does not verify
// the signature.
func (k *signer) Sign(msg []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), maxWait)
	defer cancel()
	data, err := k.source.client.call(ctx, "POST", k.source.path("sign"), map[string]any{
		"input": base64.StdEncoding.EncodeToString(msg), "key_version": k.version,
	})
	if err != nil {
		return nil, fmt.Errorf("sign with Vault: %w", err)
	}
	text, _ := data["signature"].(string)
	prefix := fmt.Sprintf("vault:v%d:", k.version)
	sig, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, prefix))
	if err != nil || !strings.HasPrefix(text, prefix) || !ed25519.Verify(k.public, msg, sig) {
		return nil, fmt.Errorf("sign with Vault: the signature is not one of version %d of %s", k.version, k.source.path("keys"))
	}
	return sig, nil
}
