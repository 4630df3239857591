package judge

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/regular"
)

// Within is the usual limit of Given.Within.
const Within = 24 * time.Hour

// Given is what a user trusts and demands of a verification. A key is the text of a public key or the name of its file.
type Given struct {
	Keys        []string // of hosts; without Keys and FleetKeys, those that the host knows
	FleetKeys   []string // root keys of fleets
	Witnesses   []string // keys
	Quorum      int      // how many of Witnesses must have cosigned; 0: all
	Within      time.Duration
	Since       string   // the file of an earlier checkpoint, "" for none
	Authorities []string // files with the roots of time stamping authorities
	Unlogged    bool
}

// GivenError means that what the user gave contradicts itself.
type GivenError struct{ text string }

// Error implements error.
func (e *GivenError) Error() string { return e.text }

// Trusted is what a user trusts and demands of a verification, with the contents of the files that Given names.
type Trusted struct {
	Keys        []string      `json:",omitempty"` // texts of public keys of hosts
	FleetKeys   []string      `json:",omitempty"`
	Witnesses   []string      `json:",omitempty"`
	Quorum      int           `json:",omitempty"`
	Within      time.Duration `json:",omitempty"`
	Since       []byte        // nil: none
	Authorities [][]byte      `json:",omitempty"`
	Unlogged    bool          `json:",omitempty"`
}

// Trust reads the keys and files that are given. known returns the keys to trust if none is given.
func (g Given) Trust(ctx context.Context, known func() (host.PublicKeys, error)) (proof.Trust, error) {
	read, err := g.Read(ctx)
	if err != nil {
		return proof.Trust{}, err
	}
	return read.Trust(known)
}

// Read reads the keys and files that are given, and checks them.
func (g Given) Read(ctx context.Context) (t Trusted, err error) {
	t = Trusted{Quorum: g.Quorum, Within: g.Within, Unlogged: g.Unlogged}
	if t.Keys, _, err = statement.ReadKeys(ctx, g.Keys, statement.ParseVerifier); err != nil {
		return t, fmt.Errorf("--key %w", err)
	}
	if t.FleetKeys, _, err = statement.ReadKeys(ctx, g.FleetKeys, statement.ParseVerifier); err != nil {
		return t, fmt.Errorf("--fleet-key %w", err)
	}
	if t.Within <= 0 {
		return t, t.check(0)
	}
	var witnesses []note.Verifier
	if t.Witnesses, witnesses, err = statement.ReadKeys(ctx, g.Witnesses, statement.ParseWitness); err != nil {
		return t, fmt.Errorf("--witness %w", err)
	}
	if err := t.check(len(witnesses)); err != nil {
		return t, err
	}
	if g.Since != "" {
		if t.Since, err = regular.Given(ctx, g.Since, statement.MaxGiven); err != nil {
			return t, err
		}
	}
	for _, file := range g.Authorities {
		text, err := regular.Given(ctx, file, statement.MaxGiven)
		if err != nil {
			return t, err
		}
		if !x509.NewCertPool().AppendCertsFromPEM(text) {
			return t, fmt.Errorf("--tsa %s has no certificate in PEM", file)
		}
		t.Authorities = append(t.Authorities, text)
	}
	return t, nil
}

// check checks the numbers. witnesses is the number of different ones.
func (t Trusted) check(witnesses int) error {
	switch {
	case t.Within <= 0:
		return &GivenError{fmt.Sprintf("--within %s: give a time, such as 24h", t.Within)}
	case t.Quorum < 0 || t.Quorum > witnesses:
		return &GivenError{fmt.Sprintf("--quorum %d of %d witnesses: give as many --witness at least", t.Quorum, witnesses)}
	}
	return nil
}

// Trust returns what is trusted. It opens no file, except those of known.
func (t Trusted) Trust(known func() (host.PublicKeys, error)) (trust proof.Trust, err error) {
	trust = proof.Trust{Quorum: t.Quorum, Within: t.Within, Unlogged: t.Unlogged, Since: t.Since}
	if len(t.Keys)+len(t.FleetKeys) == 0 {
		var keys host.PublicKeys
		if keys, err = known(); err == nil {
			trust.Keys, trust.Fleets, err = keys.Verifiers()
		}
	} else if trust.Keys, err = verifiers(t.Keys); err == nil {
		trust.Fleets, err = verifiers(t.FleetKeys)
	}
	if err != nil {
		return trust, err
	}
	if trust.Witnesses, err = statement.ParseKeys(t.Witnesses, statement.ParseWitness); err != nil {
		return trust, err
	}
	if err := t.check(len(trust.Witnesses)); err != nil {
		return trust, err
	}
	if trust.Quorum == 0 {
		trust.Quorum = len(trust.Witnesses)
	}
	for _, text := range t.Authorities {
		if trust.Authorities == nil {
			trust.Authorities = x509.NewCertPool()
		}
		if !trust.Authorities.AppendCertsFromPEM(text) {
			return trust, errors.New("an authority has no certificate in PEM")
		}
		trust.Stamped = true
	}
	return trust, nil
}

func verifiers(texts []string) (note.Verifiers, error) {
	list, err := statement.ParseKeys(texts, statement.ParseVerifier)
	if err != nil {
		return nil, err
	}
	return note.VerifierList(list...), nil
}
