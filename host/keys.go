package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/hostkey/remote"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/internal/regular"
)

// Signing returns the host's signing key from the storage that host.yaml names. If the host never had one, it creates it.
// It completes an interrupted rotation: a retired key must not sign.
func (k Keys) Signing() (hostkey.Key, error) {
	if c := k.host.signing.client(); c != nil {
		return remoteKey(c)
	}
	key, err := k.signingKey()
	if err != nil {
		return key, err
	}
	if retired, err := hostkey.IsRetired(k.host.keys(), key.Public); err != nil || !retired {
		return key, err
	}
	source, err := k.keySource()
	if err != nil {
		return hostkey.Key{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
	defer cancel()
	if err := source.Finish(ctx); err != nil {
		return hostkey.Key{}, err
	}
	return k.signingKey()
}

// signingKey returns the key in the storage. It does not check for an interrupted rotation.
func (k Keys) signingKey() (hostkey.Key, error) {
	kind, _ := parseKeyKind(k.host.config.Key) // loadConfig has checked it
	if kind.name == keyInFile {
		return hostkey.File(k.host.keys()).Key(context.Background())
	}
	return k.host.signing.key(k.host, kind)
}

// heldKey caches a key that is expensive to get, until host.pub changes.
type heldKey struct {
	mu     sync.Mutex // guards the fields below
	source hostkey.Source
	known  hostkey.Key
	public string // contents of host.pub at that time
	failed failure
	// elsewhere has the key; nil: this process
	elsewhere *remote.Client
}

// failure is the error of a source that was asked for the key.
type failure struct {
	err    error
	public string    // contents of host.pub at that time
	until  time.Time // the error is returned until then
}

// failedFor is how long a failed source is not asked again: a command that visits many runs would wait for it at each.
const failedFor = time.Second

func (v *heldKey) key(h *Host, kind keyKind) (hostkey.Key, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	public, _ := regular.ReadFile(h.keys(hostkey.PublicFile)) // if the file does not exist yet, the source is asked
	if len(public) > 0 && string(public) == v.public {
		return v.known, nil
	}
	if v.failed.public == string(public) && time.Now().Before(v.failed.until) {
		return hostkey.Key{}, v.failed.err
	}
	source, err := v.from(h, kind)
	if err != nil {
		return hostkey.Key{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
	defer cancel()
	key, err := source.Key(ctx)
	if err != nil {
		err = fmt.Errorf("signing key: %w", err)
		if kind.elsewhere() {
			v.failed = failure{err, string(public), time.Now().Add(failedFor)}
		}
		return hostkey.Key{}, err
	}
	v.known, v.public = key, strings.TrimSpace(key.Public)+"\n"
	return key, nil
}

// from returns the one source of this process, which may have read a passphrase before.
func (v *heldKey) from(h *Host, kind keyKind) (_ hostkey.Source, err error) {
	if v.source == nil {
		v.source, err = h.Keys().sourceOf(kind)
	}
	return v.source, err
}

// keyTimeout bounds requests for the public key to another process; signing has another bound.
const keyTimeout = 15 * time.Second

// keySource returns the source of the signing key.
func (k Keys) keySource() (hostkey.Source, error) {
	kind, err := parseKeyKind(k.host.config.Key)
	if err != nil {
		return nil, err
	}
	k.host.signing.mu.Lock()
	defer k.host.signing.mu.Unlock()
	if k.host.signing.elsewhere != nil {
		return nil, &KeyElsewhereError{}
	}
	return k.host.signing.from(k.host, kind)
}

// Public returns the published half of the host's key, which needs no secret and no other process. If the host has
// no key yet, it creates it.
func (k Keys) Public() (string, error) {
	if k.host.config.Key != "" && k.host.config.Key != keyInFile || k.host.signing.client() != nil {
		public, err := regular.ReadFile(k.host.keys(hostkey.PublicFile))
		if err == nil {
			_, err = note.NewVerifier(strings.TrimSpace(string(public)))
			return strings.TrimSpace(string(public)), err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	key, err := k.Signing()
	return strings.TrimSpace(key.Public), err
}

// Older returns this host's retired keys, and when each was retired, oldest first.
func (k Keys) Older() ([]statement.Rotation, error) { return hostkey.Retired(k.host.keys()) }

// Of returns the public key that signed the first manifest of a run of this host: the current key, or one that was retired
// since. For a run without manifests here it returns the current key.
func (k Keys) Of(run string) (public string, retired bool, err error) {
	return k.of(k.host.RunDir(run))
}

// of is Of for the run whose files are in dir.
func (k Keys) of(dir string) (public string, retired bool, err error) {
	public, err = k.Public()
	if err != nil {
		return "", false, err
	}
	signers, err := proof.Signers(dir)
	if err != nil || len(signers) == 0 || strings.HasPrefix(public, signers[0]) {
		return public, false, err
	}
	older, err := k.Older()
	for _, r := range older {
		if strings.HasPrefix(r.Old, signers[0]) {
			return r.Old, true, err
		}
	}
	return public, false, err
}

// name returns the name of the host's key, which is the name of the host in records.
func (k Keys) name() (string, error) {
	public, err := k.Public()
	if err != nil {
		return "", err
	}
	v, err := note.NewVerifier(public)
	if err != nil {
		return "", fmt.Errorf("%s: %w", hostkey.PublicFile, err)
	}
	return v.Name(), nil
}

// Trusted returns the verifiers of this host's keys, the current and the retired ones.
func (k Keys) Trusted() (note.Verifiers, error) {
	keys, err := k.verifiers()
	return note.VerifierList(keys...), err
}

// verifiers returns the verifiers of this host's keys, the current one first.
func (k Keys) verifiers() ([]note.Verifier, error) {
	texts, err := k.texts()
	if err != nil {
		return nil, err
	}
	return verifiersOf(texts)
}

// texts returns this host's public keys: the current one first, then the retired ones.
func (k Keys) texts() ([]string, error) {
	public, err := k.Public()
	if err != nil {
		return nil, err
	}
	rotations, err := hostkey.ReadRotations(k.host.keys())
	if err != nil {
		return nil, err
	}
	list := []string{public}
	for _, signed := range rotations {
		r, err := readRotation(signed)
		if err != nil {
			return nil, fmt.Errorf("keys: %w", err)
		}
		if list = append(list, r.Old); r.Old != public {
			continue
		}
		// The key was rotated after it was read above: the last rotation names the current one.
		if r, err = readRotation(rotations[len(rotations)-1]); err != nil {
			return nil, fmt.Errorf("keys: %w", err)
		}
		list[0] = r.New
	}
	return list, nil
}

// verifiersOf parses public keys.
func verifiersOf(texts []string) (list []note.Verifier, err error) {
	for _, text := range texts {
		v, err := note.NewVerifier(text)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// readRotation checks a rotation against the old key that it names. The file is as safe as this directory.
func readRotation(signed []byte) (statement.Rotation, error) {
	n, err := note.Open(signed, note.VerifierList())
	var unverified *note.UnverifiedNoteError
	if errors.As(err, &unverified) {
		n, err = unverified.Note, nil
	}
	if err != nil {
		return statement.Rotation{}, err
	}
	r, err := statement.ParseRotation(n.Text)
	if err != nil {
		return r, err
	}
	old, err := note.NewVerifier(r.Old)
	if err == nil {
		_, err = note.Open(signed, note.VerifierList(old))
	}
	return r, err
}

// Rotate creates a new host key, signs it with the old one, and enters the rotation into the host's log, which the service does later if the log
// is a service's. Later checkpoints are signed by the new key. from is the storage of the old key, in host.yaml's notation, if it differs from the
// current setting, which applies to the new key; empty: the same storage.
func (k Keys) Rotate(ctx context.Context, from string) (hostkey.Key, error) {
	source, err := k.keySource()
	if err != nil {
		return hostkey.Key{}, err
	}
	var stated []byte
	if from == "" {
		stated, err = source.Rotate(ctx)
	} else {
		stated, err = k.takeOver(ctx, source, from)
	}
	if err != nil {
		return hostkey.Key{}, err
	}
	log, err := k.host.ManifestLog().open(ctx)
	if served := (*ServedError)(nil); errors.As(err, &served) {
		return k.Signing() // the service enters it, see logRotations
	}
	if err != nil {
		return hostkey.Key{}, err
	}
	err = log.enter(ctx, statement.RotationLeaf(statement.Digest(stated)))
	if err := errors.Join(err, log.close(ctx)); err != nil {
		return hostkey.Key{}, fmt.Errorf("the key was rotated, but the host's log has no entry of it yet: %w", err)
	}
	return k.Signing()
}

// takeOver has the key in the storage from sign for the key of source, and removes the old private key if it is
// in a file. If an earlier call did everything but the removal, it removes the key.
func (k Keys) takeOver(ctx context.Context, source hostkey.Source, from string) ([]byte, error) {
	was, err := parseKeyKind(from)
	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	now, err := parseKeyKind(k.host.config.Key)
	if err != nil {
		return nil, err
	}
	if was == now {
		return nil, fmt.Errorf("the key is already stored in %s: omit --from to rotate it there", from)
	}
	if _, err := os.Stat(k.host.keys(hostkey.PublicFile)); err != nil {
		return nil, fmt.Errorf("this host has no key yet that could sign for a new one: %w", err)
	}
	old, err := k.sourceOf(was)
	if err != nil {
		return nil, err
	}
	all, err := hostkey.ReadRotations(k.host.keys())
	if err != nil {
		return nil, err
	}
	if _, err := source.Key(ctx); err == nil && len(all) > 0 { // an earlier call was interrupted near its end
		return all[len(all)-1], k.drop(was, now, old)
	}
	key, err := old.Key(ctx)
	if err != nil {
		return nil, fmt.Errorf("--from %s: %w", from, err)
	}
	stated, err := source.TakeOver(ctx, key)
	if err != nil {
		return nil, err
	}
	return stated, k.drop(was, now, old)
}

// drop removes a retired private key, unless the new one has replaced its file.
func (k Keys) drop(was, now keyKind, old hostkey.Source) error {
	if was.name == now.name {
		return nil
	}
	if err := hostkey.Drop(old); err != nil {
		return fmt.Errorf("the key was rotated, but the old private key still exists: %w", err)
	}
	return nil
}

// rotations returns the statements of all rotations. First it enters into the host's log any rotation that another process
// is making or left incomplete.
func (k Keys) rotations(ctx context.Context) ([][]byte, error) {
	for {
		all, err := hostkey.ReadRotations(k.host.keys())
		if err != nil || k.logRotations(ctx) == nil || ctx.Err() != nil {
			return all, errors.Join(err, ctx.Err())
		}
		if now, err := hostkey.ReadRotations(k.host.keys()); err != nil || len(now) == len(all) {
			return all, err // verification reports the missing one
		}
		// the key was rotated meanwhile, so the key that was read no longer signs for the log
	}
}

// logRotations enters the rotations that a process did not enter before it died.
func (k Keys) logRotations(ctx context.Context) error {
	rotations, err := hostkey.ReadRotations(k.host.keys())
	if err != nil || len(rotations) == 0 {
		return err
	}
	if served := (*ServedError)(nil); errors.As(k.host.ManifestLog().Served(), &served) {
		return nil // the service does it
	}
	r, err := k.host.ManifestLog().Reader()
	for _, signed := range rotations {
		entry := statement.RotationLeaf(statement.Digest(signed))
		if err == nil {
			if _, err := r.Index(ctx, entry); err == nil {
				continue
			}
		}
		log, err := k.host.ManifestLog().open(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(log.enter(ctx, entry), log.close(ctx)); err != nil {
			return fmt.Errorf("host log: %w", err)
		}
	}
	return nil
}
