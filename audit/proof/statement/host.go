package statement

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/note"
)

const (
	hostVersion = 1
	hostType    = "custody host v1\n"
	// HostSuffix ends the name of a signed statement about a host's key.
	HostSuffix = ".host"
)

// Host is the statement, signed by a fleet's root key, that a key belongs to a host of the fleet.
//
//	custody host v1
//	{"v":1,"host":"NAME","key":"NAME+HASH+KEY","time":"..."}
//
// A verifier that trusts the root key can trust the host's key for the runs that the host signed. The statement does not
// expire: a fleet that no longer trusts a host needs a new root key.
type Host struct {
	V    int       `json:"v"`
	Host string    `json:"host"` // the key's name
	Key  string    `json:"key"`  // verifier in note format
	Time time.Time `json:"time"` // when it was signed, UTC
}

// NewHost states that a key belongs to the host which it names.
func NewHost(key string, at time.Time) (Host, error) {
	v, err := ParseVerifier(key)
	if err != nil {
		return Host{}, fmt.Errorf("host's key: %w", err)
	}
	return Host{V: hostVersion, Host: v.Name(), Key: key, Time: at.UTC()}, nil
}

// Sign returns the statement as a signed note. The signer is the fleet's root key.
func (h Host) Sign(s note.Signer) ([]byte, error) { return signStatement(hostType, h, s) }

// ParseHost parses the text of a statement without its signature. It accepts the canonical encoding only.
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

// OpenHost verifies the signature of a statement with the trusted root keys.
func OpenHost(signed []byte, roots note.Verifiers) (Host, error) {
	n, err := note.Open(signed, roots)
	if err != nil {
		return Host{}, fmt.Errorf("statement about a host: %w", err)
	}
	if again, ok := Canonical(n); !ok || again != string(signed) {
		return Host{}, errors.New("statement about a host: the signed note is not in canonical form")
	}
	return ParseHost(n.Text)
}

// SignerOf returns the prefix of the key that signed a note, like Signers. It verifies nothing.
func SignerOf(signed []byte) (string, error) {
	n, err := Unverified(signed)
	if err != nil {
		return "", err
	}
	if len(n.UnverifiedSigs) == 0 {
		return "", errors.New("it has no signature")
	}
	return fmt.Sprintf("%s+%08x+", n.UnverifiedSigs[0].Name, n.UnverifiedSigs[0].Hash), nil
}
