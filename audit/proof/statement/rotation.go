package statement

import (
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/note"
)

const (
	rotationVersion = 1
	rotationType    = "custody rotation v1\n"
	// RotationSuffix ends the name of a signed rotation, after its number with 20 digits.
	RotationSuffix = ".rotation"
)

// Rotation is the statement, signed by the old key, that the host has a new key from now on.
//
//	custody rotation v1
//	{"v":1,"old":"NAME+HASH+KEY","new":"NAME+HASH+KEY","time":"..."}
//
// A verifier who trusts the old key can trust the new one. The reverse does not hold: a verifier with only the new key
// would have to trust a thief of the old one.
type Rotation struct {
	V    int       `json:"v"`
	Old  string    `json:"old"`  // verifier in note format
	New  string    `json:"new"`  // of the same name
	Time time.Time `json:"time"` // host time, UTC: when the old key was retired
}

// NewRotation states that the key whose verifier is next succeeds the key old.
func NewRotation(old, next string, at time.Time) (Rotation, error) {
	r := Rotation{V: rotationVersion, Old: old, New: next, Time: at.UTC()}
	return r, r.check()
}

// check requires two keys with one name.
func (r Rotation) check() error {
	old, err := ParseVerifier(r.Old)
	if err != nil {
		return fmt.Errorf("rotation: old key: %w", err)
	}
	next, err := ParseVerifier(r.New)
	switch {
	case err != nil:
		return fmt.Errorf("rotation: new key: %w", err)
	case old.Name() != next.Name():
		return fmt.Errorf("rotation: the new key has the name %s, the old one %s", next.Name(), old.Name())
	case r.Old == r.New:
		return fmt.Errorf("rotation: %s follows itself", r.Old)
	}
	return nil
}

// Sign returns the statement as a signed note. The signer is the old key.
func (r Rotation) Sign(s note.Signer) ([]byte, error) { return signStatement(rotationType, r, s) }

// ParseRotation parses the text of a statement without its signature. It accepts the canonical encoding only.
func ParseRotation(text string) (Rotation, error) {
	var r Rotation
	if err := parseStatement(rotationType, text, &r); err != nil {
		return Rotation{}, err
	}
	if r.V != rotationVersion {
		return Rotation{}, fmt.Errorf("rotation version %d, want %d: a newer custody can read it", r.V, rotationVersion)
	}
	return r, r.check()
}

func ReadRotation(signed []byte) (Rotation, error) {
	n, err := Unverified(signed)
	if err != nil {
		return Rotation{}, fmt.Errorf("read rotation: %w", err)
	}
	return ParseRotation(n.Text)
}
