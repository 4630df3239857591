package judge

import (
	"context"
	"crypto/x509"
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
	Keys        []string // of hosts; without Keys and FleetKeys, those that this machine knows
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

// Trust reads the keys and files that are given.
func (g Given) Trust(ctx context.Context) (proof.Trust, error) {
	t := proof.Trust{Quorum: g.Quorum, Within: g.Within, Unlogged: g.Unlogged}
	var err error
	if t.Keys, t.Fleets, err = g.keys(ctx); err != nil {
		return t, err
	}
	if g.Within <= 0 {
		return t, &GivenError{fmt.Sprintf("--within %s: give a time, such as 24h", g.Within)}
	}
	if t.Witnesses, err = statement.OpenKeys(ctx, g.Witnesses, statement.ParseWitness); err != nil {
		return t, fmt.Errorf("--witness %w", err)
	}
	if t.Quorum == 0 {
		t.Quorum = len(t.Witnesses)
	}
	if t.Quorum < 0 || t.Quorum > len(t.Witnesses) {
		return t, &GivenError{fmt.Sprintf("--quorum %d of %d witnesses: give as many --witness at least", g.Quorum, len(t.Witnesses))}
	}
	if g.Since != "" {
		if t.Since, err = regular.Given(ctx, g.Since, statement.MaxGiven); err != nil {
			return t, err
		}
	}
	return t, g.authorities(ctx, &t)
}

// keys returns the keys of hosts and the root keys of fleets.
func (g Given) keys(ctx context.Context) (hosts, fleets note.Verifiers, err error) {
	if len(g.Keys) == 0 && len(g.FleetKeys) == 0 {
		return host.KnownKeys()
	}
	if hosts, err = verifiers(ctx, "--key", g.Keys); err == nil {
		fleets, err = verifiers(ctx, "--fleet-key", g.FleetKeys)
	}
	return hosts, fleets, err
}

func verifiers(ctx context.Context, flag string, keys []string) (note.Verifiers, error) {
	list, err := statement.OpenKeys(ctx, keys, statement.ParseVerifier)
	if err != nil {
		return nil, fmt.Errorf("%s %w", flag, err)
	}
	return note.VerifierList(list...), nil
}

func (g Given) authorities(ctx context.Context, t *proof.Trust) error {
	for _, file := range g.Authorities {
		text, err := regular.Given(ctx, file, statement.MaxGiven)
		if err != nil {
			return err
		}
		if t.Authorities == nil {
			t.Authorities = x509.NewCertPool()
		}
		if !t.Authorities.AppendCertsFromPEM(text) {
			return fmt.Errorf("--tsa %s has no certificate in PEM", file)
		}
		t.Stamped = true
	}
	return nil
}
