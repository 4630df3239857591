package host

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/agekey"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/internal/regular"
)

// FleetConfig configures the fleet that this host belongs to.
type FleetConfig struct {
	Root string `yaml:"root"` // public key of the fleet's root; default: that of the root key on this machine
	Key  string `yaml:"key"`  // where the machine of the root key keeps it: file (default) or age:..., as for the host's key
}

func (f FleetConfig) check() error {
	if f.Root != "" {
		if _, err := note.NewVerifier(f.Root); err != nil {
			return fmt.Errorf("fleet.root %.80q is not a public key: %w", f.Root, err)
		}
	}
	k, err := parseKeyKind(f.Key)
	if err != nil || k.name != keyInFile && k.name != keyInAge {
		return fmt.Errorf("fleet.key %.80q: want file, age:FILE, age:credential/NAME or age:passphrase", f.Key)
	}
	return nil
}

// NotEnrolledError reports a run of a host whose key is not known here.
type NotEnrolledError struct{ Host string }

// Error implements error.
func (e *NotEnrolledError) Error() string {
	return fmt.Sprintf("the run is of another host, %s, whose public key is not known here", strings.TrimSuffix(e.Host, "+"))
}

// Hint returns the remedy.
func (e *NotEnrolledError) Hint() string {
	return "enrol that host: custody key fleet enrol on the machine of the fleet's root key, then custody key fleet add here (docs/keys.md)"
}

// rootKey returns the fleet's root key, if this machine has it.
func (f Fleet) rootKey() (hostkey.Locked, error) {
	dir := f.host.path("fleet")
	k, err := parseKeyKind(f.host.config.Fleet.Key)
	if err != nil || k.name != keyInAge {
		return hostkey.Locked{Dir: dir, Lock: hostkey.InClear()}, err
	}
	lock, err := agekey.New(agekey.Config{From: k.where, Dir: dir})
	return hostkey.Locked{Dir: dir, Lock: lock}, err
}

// Create creates the root key of a fleet and returns its public half.
func (f Fleet) Create(name string) (public string, err error) {
	root, err := f.rootKey()
	if err != nil {
		return "", err
	}
	return root.NewRoot(name)
}

// Root returns the public key of the fleet's root; the error is fs.ErrNotExist if there is none.
func (f Fleet) Root() (string, error) {
	if root := f.host.config.Fleet.Root; root != "" {
		return root, nil
	}
	public, err := regular.ReadFile(f.host.path("fleet", hostkey.RootPublicFile))
	return strings.TrimSpace(string(public)), err
}

// Roots verifies statements about hosts; without a fleet it has no key.
func (f Fleet) Roots() (note.Verifiers, error) {
	public, err := f.Root()
	if errors.Is(err, fs.ErrNotExist) {
		return note.VerifierList(), nil
	}
	if err != nil {
		return nil, err
	}
	v, err := note.NewVerifier(public)
	if err != nil {
		return nil, fmt.Errorf("the fleet's root key: %w", err)
	}
	return note.VerifierList(v), nil
}

// Enrol signs, with the fleet's root key on this machine, the statement that a public key belongs to a host. To enrol a second key
// under a name, set again: two hosts of one name could sign for each other. It returns the signed statement.
func (f Fleet) Enrol(key string, again bool) ([]byte, error) {
	stated, err := statement.NewHost(key, time.Now())
	if err != nil {
		return nil, err
	}
	all, err := f.Hosts()
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		switch {
		case e.Key == key:
			return e.Signed, nil
		case e.Host.Host == stated.Host && !again:
			return nil, fmt.Errorf("the fleet has a host %s with another key: if its key was rotated, give --again; if this is another machine, use another name", stated.Host)
		}
	}
	root, err := f.rootKey()
	if err != nil {
		return nil, err
	}
	signer, err := root.Root()
	if err != nil {
		return nil, fmt.Errorf("the fleet's root key: %w", err)
	}
	signed, err := stated.Sign(signer)
	if err != nil {
		return nil, err
	}
	return signed, f.Add(signed)
}

// Add stores a statement about a host that the fleet's root key signed.
func (f Fleet) Add(signed []byte) error {
	roots, err := f.Roots()
	if err != nil {
		return err
	}
	stated, err := statement.OpenHost(signed, roots)
	var unknown *note.UnverifiedNoteError
	if errors.As(err, &unknown) {
		return errors.New("it is not signed by the root key of this fleet: set fleet: {root: KEY} in " + ConfigFile)
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.host.path("fleet", "hosts"), 0o700); err != nil {
		return err
	}
	name := fmt.Sprintf("%x%s", sha256.Sum256([]byte(stated.Key)), statement.HostSuffix)
	return durable.Replace(f.host.path("fleet", "hosts", name), signed, 0o644)
}

// Enrolled is a host of the fleet, with the root key's statement about it.
type Enrolled struct {
	statement.Host
	Signed []byte
}

// Hosts returns the enrolled hosts, by name and time. It leaves out statements of other root keys.
func (f Fleet) Hosts() ([]Enrolled, error) {
	roots, err := f.Roots()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(f.host.path("fleet", "hosts", "*"+statement.HostSuffix))
	if err != nil {
		return nil, err
	}
	var all []Enrolled
	for _, file := range files {
		signed, err := regular.ReadFile(file)
		if err != nil {
			return nil, err
		}
		stated, err := statement.OpenHost(signed, roots)
		var unknown *note.UnverifiedNoteError
		if errors.As(err, &unknown) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, Enrolled{stated, signed})
	}
	slices.SortFunc(all, func(a, b Enrolled) int {
		return cmp.Or(strings.Compare(a.Host.Host, b.Host.Host), a.Time.Compare(b.Time))
	})
	return all, nil
}

// Known returns the verifiers of this host's keys, as Trusted does, and of the fleet's hosts.
func (f Fleet) Known() (note.Verifiers, error) {
	texts, err := f.known()
	if err != nil {
		return nil, err
	}
	list, err := verifiersOf(texts)
	if err != nil {
		return nil, err
	}
	return note.VerifierList(list...), nil
}

// known returns the texts of the keys of Known.
func (f Fleet) known() ([]string, error) {
	list, err := f.host.Keys().texts()
	if err != nil {
		return nil, err
	}
	hosts, err := f.Hosts()
	if err != nil {
		return nil, err
	}
	for _, e := range hosts {
		if !slices.Contains(list, e.Key) { // a list with two keys of the same name and hash is ambiguous
			list = append(list, e.Key)
		}
	}
	return list, nil
}

// foreignOptions adds to the options of a bundle of another host's run, whose files are in dir: that host's key, and
// the statements about it and about this host.
func (p Proofs) foreignOptions(dir, own string, all *proof.BundleOptions) error {
	signers, err := proof.Signers(dir)
	if err != nil {
		return err
	}
	hosts, err := p.host.Fleet().Hosts()
	if err != nil {
		return err
	}
	for _, signer := range signers {
		i := slices.IndexFunc(hosts, func(e Enrolled) bool { return strings.HasPrefix(e.Key, signer) })
		if i < 0 {
			return &NotEnrolledError{signer}
		}
		if len(all.Hosts) == 0 { // the first manifest's
			all.HostKey = hosts[i].Key
		}
		all.Hosts = append(all.Hosts, hosts[i].Signed)
	}
	mine, err := p.ownStatements(own)
	all.Hosts = append(all.Hosts, mine...)
	return err
}

// Bundles returns nil if this host can make a bundle of a run in the store: of its own runs and of those of
// enrolled hosts. Otherwise the error is a *NotEnrolledError.
func (p Proofs) Bundles(ctx context.Context, tenant, run string) error {
	if p.host.RunLogs().HasOf(tenant, run) {
		return nil
	}
	st, err := p.host.Store(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	r, err := st.Run(ctx, tenant, run)
	if err != nil {
		return err
	}
	manifests, err := st.Manifests(ctx, r.Tenant, r.ID)
	if err != nil {
		return err
	}
	hosts, err := p.host.Fleet().Hosts()
	if err != nil {
		return err
	}
	own, err := p.host.Keys().Public()
	if err != nil {
		return err
	}
	for _, m := range manifests {
		by, err := statement.SignerOf(m.Bytes)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(own, by) && !slices.ContainsFunc(hosts, func(e Enrolled) bool { return strings.HasPrefix(e.Key, by) }) {
			return &NotEnrolledError{by}
		}
	}
	return nil
}

// ownStatements returns the statements about this host's keys, the current and the retired ones.
func (p Proofs) ownStatements(public string) (all [][]byte, err error) {
	keys := []string{strings.TrimSpace(public)}
	retired, err := hostkey.Retired(p.host.keys())
	if err != nil {
		return nil, err
	}
	for _, r := range retired {
		keys = append(keys, r.Old)
	}
	hosts, err := p.host.Fleet().Hosts()
	for _, e := range hosts {
		if slices.Contains(keys, e.Key) {
			all = append(all, e.Signed)
		}
	}
	return all, err
}

// PublicKeys are the texts of the public keys that a machine knows.
type PublicKeys struct {
	Hosts  []string
	Fleets []string // a fleet's root
}

// KnownKeys returns the public keys that the machine with its state in dir knows. Without a key of this host it returns none.
func KnownKeys(dir string) (known PublicKeys, err error) {
	if _, err := os.Stat(filepath.Join(dir, "keys", hostkey.PublicFile)); err != nil {
		return known, nil
	}
	h, err := Open(dir)
	if err != nil {
		return known, err
	}
	return h.Fleet().KnownKeys()
}

// KnownKeys returns the public keys that this machine knows.
func (f Fleet) KnownKeys() (known PublicKeys, err error) {
	if known.Hosts, err = f.known(); err != nil {
		return known, err
	}
	root, err := f.Root()
	switch {
	case err == nil:
		known.Fleets = []string{root}
	case !errors.Is(err, fs.ErrNotExist):
		return known, err
	}
	return known, nil
}

// Verifiers parses the keys.
func (k PublicKeys) Verifiers() (hosts, fleets note.Verifiers, err error) {
	list, err := verifiersOf(k.Hosts)
	if err != nil {
		return nil, nil, err
	}
	roots, err := verifiersOf(k.Fleets)
	if err != nil {
		return nil, nil, fmt.Errorf("the fleet's root key: %w", err)
	}
	return note.VerifierList(list...), note.VerifierList(roots...), nil
}
