package home

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/transit"
	"github.com/custody-project/custody/internal/regular"
)

// Key returns the host's signing key: a file, made on first use, or one that Vault keeps.
func (h *Home) Key() (proof.Key, error) {
	if h.config.Key == "" || h.config.Key == "file" {
		return proof.FileKey(h.path("keys")).Key(context.Background())
	}
	return h.vault.key(h)
}

// vaultKey asks Vault for the public half once, and again when another one is published here.
type vaultKey struct {
	mu     sync.Mutex // guards what follows
	known  proof.Key
	public string // as it stood in host.pub then
}

func (v *vaultKey) key(h *Home) (proof.Key, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	public, _ := regular.ReadFile(h.path("keys", proof.PublicFile)) // not there yet: then Vault is asked
	if len(public) > 0 && string(public) == v.public {
		return v.known, nil
	}
	source, err := h.keySource()
	if err != nil {
		return proof.Key{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), vaultTimeout)
	defer cancel()
	key, err := source.Key(ctx)
	if err != nil {
		return proof.Key{}, fmt.Errorf("signing key: %w", err)
	}
	v.known, v.public = key, strings.TrimSpace(key.Public)+"\n"
	return key, nil
}

// vaultTimeout bounds a question to Vault about the key; signing has its own.
const vaultTimeout = 15 * time.Second

// keySource is where the signing key is.
func (h *Home) keySource() (proof.KeySource, error) {
	where, ok := strings.CutPrefix(h.config.Key, "vault-transit:")
	if !ok {
		return proof.FileKey(h.path("keys")), nil
	}
	c := transit.Config{Name: where, Dir: h.path("keys")}
	if i := strings.LastIndex(where, "/"); i >= 0 {
		c.Mount, c.Name = where[:i], where[i+1:]
	}
	return transit.New(c)
}

// Trusted are the verifiers of this host's keys, the one in use and those before it.
func (h *Home) Trusted() (note.Verifiers, error) {
	keys, err := h.verifiers()
	return note.VerifierList(keys...), err
}

// verifiers of this host's keys, the one in use first.
func (h *Home) verifiers() ([]note.Verifier, error) {
	key, err := h.Key()
	if err != nil {
		return nil, err
	}
	current, err := key.Verifier()
	if err != nil {
		return nil, err
	}
	rotations, err := proof.ReadRotations(h.path("keys"))
	if err != nil {
		return nil, err
	}
	list := []note.Verifier{current}
	for _, signed := range rotations {
		old, err := signedBy(signed)
		if err != nil {
			return nil, fmt.Errorf("keys: %w", err)
		}
		list = append(list, old)
	}
	return list, nil
}

// readRotation checks a rotation against the old key that it names itself: who keeps this
// directory keeps that key.
func readRotation(signed []byte) (proof.Rotation, error) {
	n, err := note.Open(signed, note.VerifierList())
	var unverified *note.UnverifiedNoteError
	if errors.As(err, &unverified) {
		n, err = unverified.Note, nil
	}
	if err != nil {
		return proof.Rotation{}, err
	}
	r, err := proof.ParseRotation(n.Text)
	if err != nil {
		return r, err
	}
	old, err := note.NewVerifier(r.Old)
	if err == nil {
		_, err = note.Open(signed, note.VerifierList(old))
	}
	return r, err
}

// signedBy returns the old key that a rotation names, if that signed it.
func signedBy(signed []byte) (note.Verifier, error) {
	r, err := readRotation(signed)
	if err != nil {
		return nil, err
	}
	return note.NewVerifier(r.Old)
}

// RotateKey gives the host a new key, which the old one signs for, and enters that into
// the host's log. Checkpoints from then on are signed by the new key.
func (h *Home) RotateKey(ctx context.Context) (proof.Key, error) {
	source, err := h.keySource()
	if err != nil {
		return proof.Key{}, err
	}
	statement, err := source.Rotate(ctx)
	if err != nil {
		return proof.Key{}, err
	}
	log, err := h.openNotary(ctx)
	if err != nil {
		return proof.Key{}, err
	}
	err = log.enter(ctx, proof.RotationLeaf(proof.Digest(statement)))
	if err := errors.Join(err, log.close(ctx)); err != nil {
		return proof.Key{}, fmt.Errorf("the key is changed, and the host's log does not say so yet: %w", err)
	}
	return h.Key()
}

// logRotations enters the rotations that a process which died did not.
func (h *Home) logRotations(ctx context.Context) error {
	rotations, err := proof.ReadRotations(h.path("keys"))
	if err != nil || len(rotations) == 0 {
		return err
	}
	r, err := h.LogReader()
	for _, signed := range rotations {
		entry := proof.RotationLeaf(proof.Digest(signed))
		if err == nil {
			if _, err := r.Index(ctx, entry); err == nil {
				continue
			}
		}
		log, err := h.openNotary(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(log.enter(ctx, entry), log.close(ctx)); err != nil {
			return fmt.Errorf("host log: %w", err)
		}
	}
	return nil
}
