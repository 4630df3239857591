package proof

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/internal/regular"
)

const (
	hostVersion = 1
	hostType    = "custody host v1\n"
	// HostSuffix ends the name of a signed statement about a host's key.
	HostSuffix = ".host"
	maxHosts   = 1000 // statements in a bundle
)

// The files of a fleet's root key, in a directory of their own.
const (
	RootFile       = "root.key" // signer in note format, mode 0600
	RootPublicFile = "root.pub" // verifier in note format
)

// Host is the statement, signed by a fleet's root key, that a key is that of a host of the fleet.
//
//	custody host v1
//	{"v":1,"host":"NAME","key":"NAME+HASH+KEY","time":"..."}
//
// A verifier who trusts the root key can trust the host's for the runs that the host signed. It does not end: a fleet
// that no longer trusts a host begins with another root key.
type Host struct {
	V    int       `json:"v"`
	Host string    `json:"host"` // the key's name
	Key  string    `json:"key"`  // verifier in note format
	Time time.Time `json:"time"` // when it was signed, UTC
}

// NewHost states that a key is that of the host which it names.
func NewHost(key string, at time.Time) (Host, error) {
	v, err := ParseVerifier(key)
	if err != nil {
		return Host{}, fmt.Errorf("host's key: %w", err)
	}
	return Host{V: hostVersion, Host: v.Name(), Key: key, Time: at.UTC()}, nil
}

// Sign returns the statement as a signed note. The signer is the fleet's root key.
func (h Host) Sign(s note.Signer) ([]byte, error) { return signStatement(hostType, h, s) }

// ParseHost reads the text of a statement without its signature. It takes the canonical encoding only.
func ParseHost(text string) (Host, error) {
	var h Host
	if err := parseStatement(hostType, text, &h); err != nil {
		return Host{}, err
	}
	if h.V != hostVersion {
		return Host{}, fmt.Errorf("host statement version %d, want %d: a newer custody can read it", h.V, hostVersion)
	}
	v, err := ParseVerifier(h.Key)
	switch {
	case err != nil:
		return Host{}, fmt.Errorf("host's key: %w", err)
	case v.Name() != h.Host:
		return Host{}, fmt.Errorf("the key of %s is stated to be that of %s", v.Name(), h.Host)
	}
	return h, nil
}

// OpenHost checks the signature of a statement with the root keys that are trusted.
func OpenHost(signed []byte, roots note.Verifiers) (Host, error) {
	n, err := note.Open(signed, roots)
	if err != nil {
		return Host{}, fmt.Errorf("statement about a host: %w", err)
	}
	if again, ok := canonical(n); !ok || again != string(signed) {
		return Host{}, errors.New("statement about a host: the signed note is not in canonical form")
	}
	return ParseHost(n.Text)
}

// attest adds the keys that trusted roots state to be those of hosts. A statement of an unknown root has no effect, and
// is no finding.
func (r *ring) attest(roots note.Verifiers, statements []statement) (used []Host, err error) {
	if len(statements) > maxHosts {
		return nil, broken(ErrBundleSize, 0, "", "%d statements about hosts, at most %d", len(statements), maxHosts)
	}
	if roots == nil {
		roots = note.VerifierList()
	}
	trusted := newRing(roots)
	for _, s := range statements {
		n, _, known, err := trusted.openSigned(s.signed)
		var h Host
		if err == nil {
			h, err = ParseHost(n.Text)
		}
		if err != nil {
			return used, broken(ErrHostForged, 0, s.file, "%v", err)
		}
		if !known {
			continue
		}
		v, err := ParseVerifier(h.Key)
		if err != nil {
			return used, broken(ErrHostForged, 0, s.file, "%v", err)
		}
		if !r.knows(idOf(v)) {
			r.linked[idOf(v)] = v
		}
		used = append(used, h)
	}
	return used, nil
}

// hosts are the statements about hosts' keys.
func (e *Evidence) hosts() ([]statement, error) {
	if e.bundle {
		return e.statements(HostSuffix)
	}
	return nil, nil
}

// Signers returns how the keys that signed the manifests of the run in dir begin, "NAME+HASH+", each once and in
// order. Nothing is verified.
func Signers(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"+wal.ManifestSuffix))
	if err != nil {
		return nil, err
	}
	var all []string
	known := map[string]bool{}
	for _, file := range files {
		data, err := regular.ReadFile(file)
		if err != nil {
			return nil, err
		}
		by, err := SignerOf(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		if !known[by] {
			known[by] = true
			all = append(all, by)
		}
	}
	return all, nil
}

// SignerOf returns how the key that signed a note begins, as Signers does. Nothing is verified.
func SignerOf(signed []byte) (string, error) {
	n, err := unverified(signed)
	if err != nil {
		return "", err
	}
	if len(n.UnverifiedSigs) == 0 {
		return "", errors.New("it has no signature")
	}
	return fmt.Sprintf("%s+%08x+", n.UnverifiedSigs[0].Name, n.UnverifiedSigs[0].Hash), nil
}

// NewRoot makes a fleet's root key in Dir, encrypted by Lock, and returns its public half. It refuses to replace one.
func (f LockedKey) NewRoot(name string) (public string, err error) {
	if name == "" || strings.ContainsAny(name, "+ \t\r\n") {
		return "", fmt.Errorf("%q cannot name a key: no spaces and no plus sign", name)
	}
	if _, err := os.Lstat(filepath.Join(f.Dir, RootPublicFile)); err == nil {
		return "", fmt.Errorf("%s has a fleet's root key already: %w", f.Dir, fs.ErrExist)
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
func (f LockedKey) Root() (Key, error) { return f.load(RootFile) }

// InClear is the Lock of keys that are not encrypted.
func InClear() Lock { return inClear{} }
