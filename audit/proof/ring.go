package proof

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
)

const (
	maxRotations = 1000
	// rotationGrace is how long after its retirement a key may still begin runs, because a process
	// may have loaded it before. It is also how long before a rotation the new key may seal, because clocks
	// can be set back.
	rotationGrace = 10 * time.Minute
)

// ring is the set of trusted keys: those that the verifier pinned, and those that
// their statements lead to.
type ring struct {
	pinned note.Verifiers
	linked map[keyID]note.Verifier
	next   map[keyID]statement.Rotation // by the old key
	since  map[keyID]time.Time          // of the latest rotation that leads to the key
	// named are keys that statements retire and that are not trusted. Their signatures prove only that what they
	// signed was not altered since.
	named map[keyID]note.Verifier
}

func newRing(pinned note.Verifiers) *ring {
	return &ring{pinned: pinned, linked: map[keyID]note.Verifier{}, next: map[keyID]statement.Rotation{}, since: map[keyID]time.Time{}, named: map[keyID]note.Verifier{}}
}

// Verifier implements note.Verifiers.
func (r *ring) Verifier(name string, hash uint32) (note.Verifier, error) {
	if v, ok := r.linked[keyID{name, hash}]; ok {
		return v, nil
	}
	return r.pinned.Verifier(name, hash)
}

func (r *ring) knows(k keyID) bool {
	_, err := r.Verifier(k.name, k.hash)
	return err == nil
}

// repeated returns the name of a duplicate statement, or "".
func repeated(all []signedFile) string {
	seen := map[merkle.Hash]bool{}
	for _, s := range all {
		if seen[s.digest] {
			return s.file
		}
		seen[s.digest] = true
	}
	return ""
}

// openSigned checks the one signature of a signed note that this package made. The id is that of the key; the bool is
// false with a nil error if the key is unknown.
func (r *ring) openSigned(signed []byte) (n *note.Note, by keyID, known bool, err error) {
	n, err = statement.OpenNote(signed, r)
	var unknown *note.UnverifiedNoteError
	if errors.As(err, &unknown) {
		n, err = unknown.Note, nil
	}
	if err != nil {
		return nil, keyID{}, false, err
	}
	if again, ok := statement.Canonical(n); !ok || again != string(signed) {
		return nil, keyID{}, false, errors.New("the signed note is not in canonical form")
	}
	if len(n.Sigs) > 0 {
		return n, keyID{n.Sigs[0].Name, n.Sigs[0].Hash}, true, nil
	}
	return n, keyID{n.UnverifiedSigs[0].Name, n.UnverifiedSigs[0].Hash}, false, nil
}

// link adds the keys to which the statements lead from trusted ones. A chain that begins with an unknown key adds none,
// and is not a finding.
func (r *ring) link(statements []signedFile) (used []statement.Rotation, err error) {
	if len(statements) > maxRotations {
		return nil, verdict.Broken(verdict.ErrBundleSize, 0, "", "%d rotations of keys, at most %d", len(statements), maxRotations)
	}
	left := slices.Clone(statements)
	for progress := true; progress; {
		progress = false
		for i, s := range left {
			if s.signed == nil {
				continue
			}
			rotation, known, err := r.rotation(s)
			if err != nil {
				return used, err
			}
			if known {
				used = append(used, rotation)
				left[i].signed, progress = nil, true
			}
		}
	}
	return used, nil
}

// rotation checks one statement; known reports whether the old key is trusted.
func (r *ring) rotation(s signedFile) (rotation statement.Rotation, known bool, err error) {
	n, by, known, err := r.openSigned(s.signed)
	if err == nil {
		rotation, err = statement.ParseRotation(n.Text)
	}
	if err != nil {
		return rotation, false, verdict.Broken(verdict.ErrRotationForged, 0, s.file, "%v", err)
	}
	old, err := statement.ParseVerifier(rotation.Old)
	if err != nil || idOf(old) != by {
		return rotation, false, verdict.Broken(verdict.ErrRotationForged, 0, s.file, "%s signed it, not the key that it retires", by.name)
	}
	if !known {
		r.named[by] = old
		return rotation, false, nil
	}
	return rotation, true, r.retire(by, rotation, s.file)
}

// follow adds the keys that verified rotations lead to: the statements of each chain are in order.
func (r *ring) follow(rotations []statement.Rotation) error {
	for _, one := range rotations {
		old, err := statement.ParseVerifier(one.Old)
		if err != nil {
			return verdict.Broken(verdict.ErrRotationForged, 0, "", "%v", err)
		}
		if by := idOf(old); r.knows(by) {
			if err := r.retire(by, one, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// retire adds the successor of a trusted key.
func (r *ring) retire(by keyID, rotation statement.Rotation, file string) error {
	next, err := statement.ParseVerifier(rotation.New)
	if err != nil {
		return verdict.Broken(verdict.ErrRotationForged, 0, file, "%v", err)
	}
	if before, ok := r.next[by]; ok && before != rotation {
		return verdict.Broken(verdict.ErrRotationForked, 0, file, "%s is followed by %s and by %s", rotation.Old, before.New, rotation.New)
	}
	r.next[by], r.linked[idOf(next)] = rotation, next
	if rotation.Time.After(r.since[idOf(next)]) {
		r.since[idOf(next)] = rotation.Time
	}
	return nil
}
